"""The whole content of a file that a library parses in memory, and the only file of a folder that has a format."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnexp.datasets.base import check_memory, data_folder, where_to_put
from gnnexp.datasets.reading.tables import unpacked_limit
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import SMALL_BYTES, is_file, is_folder, open_regular, parse_json, read_limited

_BESIDE = ("readme", "license", "citing", "citation")  # files that describe a graph, and have none
_AGAIN = "get the file again"
JSON_FACTOR = 30  # bytes of memory for each byte: an empty list has two bytes, and takes 64
MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8, with which programs of Windows begin a text


def content_of(path: Path, factor: int) -> bytes:
    """The bytes of a regular file; a `.gz` file is unpacked.

    Args:
        path: the file.
        factor: bytes of memory that the parser needs for each byte of the content.

    Raises:
        DataError: the file cannot be read, unpacks to too much, or is too large for the memory.
    """
    check_memory(factor * (path.stat().st_size if is_file(path) else 0), str(path))
    try:
        with open_regular(path) as file:
            if path.suffix != ".gz":
                return file.read()
            limit = unpacked_limit(path)
            content = gzip.GzipFile(fileobj=file).read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        shown = (isinstance(error, OSError) and error.strerror) or str(error)[:200]
        raise DataError(Problem(str(path), shown, "this file must be whole and readable", _AGAIN)) from None
    if len(content) > limit:
        raise DataError(
            Problem(
                str(path),
                f"unpacks to more than {limit} bytes",
                "must unpack to less",
                "unpack it yourself if that is right",
            )
        )
    check_memory(factor * len(content), str(path))
    return content


def text_of(path: Path, factor: int) -> str:
    """The content of a text in UTF-8; a byte order mark is left out.

    Raises:
        DataError: as `content_of`, or the text is not UTF-8.
    """
    content = content_of(path, factor)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be text in UTF-8", "write it in UTF-8")) from None


def endings(path: Path) -> str:
    """The ending of a file in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def visible_files(place: Path) -> list[Path]:
    """`place` if it is a file, else the files of the folder, without hidden files and those that describe a graph.

    Empty for a place that cannot be read.
    """
    if not is_folder(place):
        return [place] if is_file(place) else []
    try:
        return [
            entry
            for entry in sorted(place.iterdir())
            if is_file(entry) and not entry.name.lower().startswith((".", *_BESIDE))
        ]
    except OSError:
        return []


def start_of(path: Path, count: int = 4096) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(count)
    except OSError:
        return b""


def json_that_has(path: Path, words: Sequence[bytes]) -> object:
    """The value of a JSON file of at most `SMALL_BYTES` that has all these words; None for any other file.

    Only a file that has them is parsed: others may be tables of another format.

    Raises:
        DataError: it has the words, and is too large for the memory.
    """
    try:
        content = read_limited(path, SMALL_BYTES)
        if not all(word in content for word in words):
            return None
        check_memory(JSON_FACTOR * len(content), str(path))
        return parse_json(content)
    except (OSError, ValueError):
        return None


def one_file(path: str | None, directory: str, fits: Callable[[Path], bool], wanted: str) -> Path:
    """The file of a dataset that has one: `path`, or the only file of the folder that fits.

    Args:
        path: `dataset.path`.
        directory: usual folder in `$GNNEXP_DATA`.
        fits: whether a file of a folder has the format.
        wanted: the format, for messages.

    Raises:
        DataError: there is no such file, or there are several.
    """
    place = data_folder(path, directory)
    if not place.is_dir():
        if not is_file(place):
            raise DataError(Problem("dataset.path", str(place), "is no regular file", where_to_put(directory)))
        return place
    files = [file for file in visible_files(place) if fits(file)]
    if len(files) != 1:
        names = [file.name for file in files] or [file.name for file in visible_files(place)[:10]]
        raise DataError(
            Problem(
                "dataset.path", str(place), f"has {names}; needed is one file: {wanted}", "set dataset.path to the file"
            )
        )
    return files[0]
