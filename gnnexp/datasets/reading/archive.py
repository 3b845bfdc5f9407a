"""Files of a `.tar.gz` read in memory: nothing is written to disk, sizes are bounded before memory is taken."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.tables import unpacked_limit
from gnnexp.errors import DataError, Problem

MEMBERS_FIX = "get it again, or unpack it and set dataset.path to the folder"
# A published archive has a handful; each further header would cost time.
_MAX_MEMBERS = 64


def read_archive(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The files `names` at the root of an archive, by name.

    Raises:
        DataError: it is damaged, unpacks to far more than text can, has anything but regular files at its root, or
            lacks some of them.
    """
    limit = unpacked_limit(path)
    check_memory(limit, str(path))
    try:
        with gzip.open(path) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise tarfile.ReadError(f"it unpacks to more than {limit} bytes")
        files = _regular_files(content)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        found = str(error)[:200] or type(error).__name__
        allowed = "must be a whole .tar.gz of regular files"
        raise DataError(Problem(str(path), found, allowed, MEMBERS_FIX)) from None
    missing = [Problem(f"{path}: {name}", f"has {', '.join(sorted(files))[:200]}", "this file is needed", MEMBERS_FIX)
               for name in names if name not in files]
    DataError.raise_all(missing)
    return {name: files[name] for name in names}


def _regular_files(content: bytes) -> dict[str, bytes]:
    """Every member of an unpacked archive."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            # A sparse member may claim any size; links and folders lead elsewhere.
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or "/" in member.name:
                raise tarfile.ReadError(f"{member.name[:80]!r} is no regular file at the root")
            if member.name in files or len(files) == _MAX_MEMBERS:
                raise tarfile.ReadError(f"{member.name[:80]!r} is one too many")
            if member.offset_data + member.size > len(content):
                raise tarfile.ReadError(f"{member.name[:80]!r} claims {member.size} bytes")
            files[member.name] = content[member.offset_data : member.offset_data + member.size]
    return files
