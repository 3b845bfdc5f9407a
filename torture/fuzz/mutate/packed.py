"""Packed text (`.gz`) and archives of files (`.tar`)."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from random import Random

from torture.fuzz.mutate.raw import damaged

_TYPES = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    b"Z",
    tarfile.GNUTYPE_SPARSE,
)
_HEADERS: tuple[dict[str, str], ...] = (
    {"path": "a\0b"},
    {"size": "99999999999"},
    {"size": "-5"},
    {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
    {"path": "../escaped"},
    {"hdrcharset": "BINARY", "path": "\udcff"},
    {"size": "x"},
    {"mtime": "nan"},
    {"path": ""},
    {"linkpath": "/etc/passwd"},
    {"path": "a" * 5000},
    {"comment": "x" * 70000},
)


def gz(content: bytes, random: Random, inner: Callable[[bytes, Random], bytes]) -> bytes:
    """Packed text that is damaged inside or outside."""
    return (
        damaged(content, random)
        if random.random() < 0.25
        else gzip.compress(inner(gzip.decompress(content), random), 1)
    )


def tar(
    members: list[tuple[str, bytes]], random: Random, inner: Callable[[bytes, Random], bytes], names: tuple[str, ...]
) -> bytes:
    """A tar archive, not packed, of which one member is damaged, or is of another name or type.

    Args:
        members: names and contents of an archive that is whole.
        random: generator.
        inner: damage to a content.
        names: that a member should not have.
    """
    made, victim = io.BytesIO(), random.randrange(len(members))
    formats = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.PAX_FORMAT]
    with tarfile.open(fileobj=made, mode="w", format=random.choice(formats)) as archive:
        for number, (name, data) in enumerate(members):
            entry = tarfile.TarInfo(name)
            content = _victim(entry, data, random, inner, names) if number == victim else data
            entry.size = len(content) if entry.type == tarfile.REGTYPE else 0
            try:
                archive.addfile(entry, io.BytesIO(content))
            except (ValueError, UnicodeEncodeError):  # this format has no room for such a name: leave the member out
                continue
    return damaged(made.getvalue(), random) if random.random() < 0.25 else made.getvalue()


def _victim(
    entry: tarfile.TarInfo, data: bytes, random: Random, inner: Callable[[bytes, Random], bytes], names: tuple[str, ...]
) -> bytes:
    how = random.random()
    if how < 0.2:
        entry.name = random.choice(names)
    elif how < 0.35:
        entry.type, entry.linkname = random.choice(_TYPES), random.choice(["/etc/passwd", "../../escaped", "."])
    elif how < 0.5:
        entry.pax_headers = dict(random.choice(_HEADERS))
    return inner(data, random) if how >= 0.5 else data
