"""Code that is no source in a folder of the user's: packages that were installed, modules in archives."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gnnexp.errors import DataError, Problem
from gnnexp.provenance.source import DIGITS

_CODE = (".py", ".so", ".pyd")
# Of a library that is larger only the size counts: nobody edits one and keeps the version and every source.
_LARGE_BYTES = 64 << 20


def digest_of_installed(places: Iterable[Path]) -> str:
    """The digest of the code in the folders of an installed package, or of its one file.

    A version alone does not tell: `pip install .` of a project that was edited keeps it.

    Raises:
        DataError: a file cannot be read.
    """
    total = hashlib.sha256()
    for place in places:
        for name, file in _code_in(place):
            try:
                size = file.stat().st_size
                content = file.read_bytes() if size <= _LARGE_BYTES else b""
            except OSError as error:
                raise DataError(Problem(str(file), error.strerror, "the code of a component must be readable",
                                        "install the package again")) from None
            total.update(f"{name} {size}\n".encode() + content)
    return total.hexdigest()[:DIGITS]


def _code_in(place: Path) -> Iterator[tuple[str, Path]]:
    """Files of code with their names relative to `place`, in order; what Python compiled is none."""
    if not place.is_dir():
        yield place.name, place
        return
    for folder, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(_CODE):
                file = Path(folder) / name
                yield file.relative_to(place).as_posix(), file


def existing(origin: Path) -> Path:
    """Where the bytes of a module are: the file itself, or the archive in which it is a member."""
    return next((place for place in (origin, *origin.parents) if place.is_file()), origin)
