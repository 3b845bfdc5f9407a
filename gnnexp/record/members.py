"""Reads what gnnexp 0.1 exported: the files in a `.tar.xz`, one at a time and within limits, whatever it contains.

`tarfile` reads long names, pax headers and tables of sparse files into memory before their size can be checked. What
`gnnexp export` wrote has regular files, and pax headers with long paths; nothing else is read.
"""

from __future__ import annotations

import lzma
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_BLOCK, _CHUNK = tarfile.BLOCKSIZE, 1 << 20
# Records are packed by a factor of 30, text of zeros by 7000.
_MOST_BYTES, _MOST_FACTOR, _ALWAYS_ALLOWED = 4 << 30, 1000, 1 << 20
# `xz -9` needs 65 MiB; the archive decides how much memory a decoder needs.
_DECODER_BYTES = 128 << 20
_MOST_HEADER_BYTES = 64 << 10
# A hundred sweeps of a thousand runs have fewer members.
_MOST_MEMBERS = 500_000
_NOTHING = bytes(_BLOCK)


class UnpackedFile:
    """The unpacked contents of an `.xz` file, read from start to end.

    Args:
        file: the file, at its start.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER_BYTES)
        self._ready = bytearray()
        self._most = min(_MOST_BYTES, max(_ALWAYS_ALLOWED, _MOST_FACTOR * os.fstat(file.fileno()).st_size))
        self._left = self._most

    def read(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            EOFError: fewer bytes are left.
            lzma.LZMAError: the file is damaged.
            tarfile.TarError: it unpacks to more than the limit.
        """
        while len(self._ready) < size:
            if self._decoder.eof:
                raise EOFError("it ends too early")
            self._ready += self._more()
        content = bytes(self._ready[:size])
        del self._ready[:size]
        return content

    def skip(self, size: int) -> None:
        """Skip the next `size` bytes."""
        while size > 0:
            size -= len(self.read(min(size, _CHUNK)))

    def finish(self) -> None:
        """Read to the end, so that a damaged checksum is found, and refuse data after the end."""
        while not self._decoder.eof:
            self._more()
        if self._decoder.unused_data or self._file.read(1):
            raise tarfile.ReadError("something follows its end")

    def _more(self) -> bytes:
        """The next piece, which may be empty."""
        packed = self._file.read(_CHUNK) if self._decoder.needs_input else b""
        if not packed and self._decoder.needs_input:
            raise EOFError("it ends too early")
        piece = self._decoder.decompress(packed, _CHUNK)
        self._left -= len(piece)
        if self._left < 0:
            raise tarfile.ReadError(f"it unpacks to more than {self._most:,} bytes")
        return piece


@dataclass
class Member:
    """A file in the archive, which must be read before the next one.

    Attributes:
        name: name in the archive.
        size: size in bytes, as the archive states it.
    """

    name: str
    size: int
    _source: UnpackedFile
    _left: int

    def read(self, limit: int) -> bytes:
        """The whole content.

        Raises:
            tarfile.TarError: it has more than `limit` bytes.
        """
        if self.size > limit:
            raise tarfile.ReadError(f"{self.name[:80]!r} has {self.size:,} bytes, at most {limit:,} are read")
        self._left = 0
        return self._source.read(self.size)

    def skip(self) -> None:
        """Skip the rest of the file and its padding."""
        self._source.skip(self._left + -self.size % _BLOCK)


def members(file: BinaryIO) -> Iterator[Member]:
    """The files in an archive, in its order.

    Raises:
        EOFError, lzma.LZMAError: it is damaged.
        tarfile.TarError: it contains anything except regular files, or more than the limits.
        ValueError: a header is damaged.
    """
    source, path, count = UnpackedFile(file), "", 0
    while (block := source.read(_BLOCK)) != _NOTHING:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        count += 1
        if count > _MOST_MEMBERS:
            raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS:,} entries")
        if header.size < 0:
            raise tarfile.ReadError("an entry has a negative size")
        if header.type == tarfile.XHDTYPE and not path:
            path = _path_in(_pax_header(source, header.size))
            continue
        name = path or header.name
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise tarfile.ReadError(f"{name[:80]!r} is no file of a record: it is no regular file")
        member, path = Member(name, header.size, source, header.size), ""
        yield member
        member.skip()
    source.finish()


def _pax_header(source: UnpackedFile, size: int) -> bytes:
    if size > _MOST_HEADER_BYTES:
        raise tarfile.ReadError(f"a header has {size:,} bytes, at most {_MOST_HEADER_BYTES:,} are read")
    content = source.read(size)
    source.skip(-size % _BLOCK)
    return content


def _path_in(header: bytes) -> str:
    """The path in a pax header of lines `<length> <key>=<value>`; other keys change the meaning and are refused."""
    place, path = 0, ""
    while place < len(header):
        digits = header[place : place + 20].partition(b" ")[0]
        line = header[place : place + int(digits)] if digits.isdigit() else b""
        key, equals, value = line[len(digits) + 1 : -1].partition(b"=")
        if not line.endswith(b"\n") or len(line) != int(digits) or not equals:
            raise tarfile.ReadError("a header is damaged")
        if key != b"path":
            raise tarfile.ReadError(f"a header has {key[:40]!r}, which is no part of a record's")
        path = value.decode("utf-8")
        place += len(line)
    return path
