"""Pajek's networks (`.net`). The numbers of vertices are their identity; labels are ids if all differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph, GraphCollector, Row
from gnnexp.datasets.formats.graph_files.growing import growing
from gnnexp.errors import DataError

_TOKEN = re.compile(r'\s+|"(?P<text>[^"]*)"(?=\s|$)|(?P<word>[^\s"]+)(?=\s|$)')
_ENTITY = re.compile(r"&#(\d{1,7});")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_NO_NUMBERS = ("nan", "inf", "-inf", "+inf")  # igraph writes them as weights
_TIME = re.compile(r"\[[\d\-,;*\s]+\]")
_LISTS = {"*arcslist": True, "*edgeslist": False}
_PAIRS = {"*arcs": True, "*edges": False}
_WIDTH = {"w": "edgewidth"}  # igraph's name: the width of a drawn line is no weight
_DISPLAY = frozenset(["label", "x", "y", "z", "shape"])
_MAX_VERTICES = 1 << 31
Line = tuple[int, str]


def read_pajek(path: Path, text: str) -> AttributedGraph:
    """The network in `text`.

    Raises:
        DataError: the text is no network, or has a section or a line that gnnexp does not read. Names it.
    """
    reader = _Reader(path)
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    for number, line in growing(lines, f"{path}, lines"):
        if line and not line.startswith("%"):
            reader.take((number, line))
    return reader.graph()


class _Reader:
    """What is known while lines come."""

    def __init__(self, path: Path) -> None:
        self.found = GraphCollector(path, "Pajek")
        self.section = ""
        self.relation: int | None = None
        self.count = -1
        self.first_mode = 0  # vertices of the first mode of a two-mode network
        self.labels: dict[int, str] = {}
        self.rows: dict[int, Row] = {}
        self.matrix: list[float] = []
        self.num_times = 0

    def take(self, line: Line) -> None:
        """A line that is neither empty nor a comment."""
        if line[1].startswith("*"):
            self._open(line)
        elif self.section == "*vertices":
            self._vertex(line)
        elif self.section in _PAIRS:
            self._pair(line)
        elif self.section in _LISTS:
            first, *others = [self._number(line, word) for word in line[1].split()]
            for other in others:
                self._edge(first, other, directed=_LISTS[self.section])
        elif self.section == "*matrix":
            self.matrix += [self._real(line, word) for word in line[1].split()]
        else:
            raise self._wrong(line, "comes before *Vertices", "begin with *Vertices N")

    def _open(self, line: Line) -> None:
        word, *after = line[1].split(None, 1)
        rest = after[0] if after else ""
        section = word.lower().partition(":")[0]
        if section == "*network" and self.count < 0:
            return
        if section == "*vertices" and self.count < 0:
            self._begin(line, rest.split())
        elif section not in (*_PAIRS, *_LISTS, "*matrix") or self.count < 0 or (section == "*matrix" and self.matrix):
            twice = section in ("*network", "*vertices", "*matrix")
            raise self._wrong(
                line,
                "comes twice: the file has several networks"
                if twice
                else "is no section of a network, or comes before *Vertices",
                "keep one network in the file, with *Vertices, *Arcs, *Edges, *Arcslist, *Edgeslist or *Matrix",
            )
        self.section = section
        number = re.search(r":\s*(\d+)", line[1])
        self.relation = int(number[1]) if number and section != "*vertices" else None

    def _begin(self, line: Line, words: Sequence[str]) -> None:
        sizes = [int(one) for one in words if one.isdecimal()]
        if len(sizes) != len(words) or len(sizes) not in (1, 2) or max(sizes) >= _MAX_VERTICES:
            raise self._wrong(line, "must have the number of vertices", "write *Vertices N")
        self.count = sizes[0]
        self.first_mode = sizes[1] if len(sizes) == 2 else 0

    # --- vertices -----------------------------------------------------------------------------------------------------
    def _vertex(self, line: Line) -> None:
        words = list(growing(self._words(line), f"{self.found.path}, line {line[0]}"))
        number = self._number(line, words[0])
        if number in self.rows:
            raise self._wrong(line, "has the number of an earlier vertex", "give each vertex a number of its own")
        row: Row = {}
        self.rows[number] = row
        if len(words) == 1:
            return
        self.labels[number] = words[1]
        rest = [word for word in words[2:] if not _TIME.fullmatch(word)]
        self.num_times += len(words) - 2 - len(rest)
        axes = 0
        while axes < min(3, len(rest)) and _NUMBER.fullmatch(rest[axes]):
            row["xyz"[axes]] = float(rest[axes])
            axes += 1
        rest = rest[axes:]
        if len(rest) % 2:
            row["shape"] = rest.pop(0)
        row.update(self._attributes(line, rest))

    def _attributes(self, line: Line, words: Sequence[str]) -> Row:
        """Pairs of a name and a value."""
        if len(words) % 2 or len({*words[::2]}) < len(words) // 2:
            raise self._wrong(line, "has a name of an attribute without a value, or twice", "write NAME VALUE")
        return dict(zip(words[::2], words[1::2], strict=True))

    # --- edges --------------------------------------------------------------------------------------------------------
    def _pair(self, line: Line) -> None:
        words = [word for word in self._words(line) if not _TIME.fullmatch(word)]
        if len(words) < 2:
            raise self._wrong(line, "has no two ends", "write SOURCE DESTINATION WEIGHT")
        row = self._edge(self._number(line, words[0]), self._number(line, words[1]), directed=_PAIRS[self.section])
        rest = words[2:]
        if rest and (_NUMBER.fullmatch(rest[0]) or rest[0].lower() in _NO_NUMBERS):
            row["weight"] = float(rest.pop(0))
        row |= {_WIDTH.get(name, name): value for name, value in self._attributes(line, rest).items()}

    def _edge(self, source: int, destination: int, *, directed: bool) -> Row:
        row = self.found.edge(source, destination, directed=directed)
        if self.relation is not None:
            row["relation"] = self.relation
        return row

    def _entries(self) -> None:
        """The arcs of the matrix; in a two-mode network, its rows are the first mode and its columns the second."""
        if not self.matrix:
            return
        rows = self.first_mode or self.count
        columns = self.count - self.first_mode
        if len(self.matrix) != rows * columns:
            raise self.found.wrong(
                "*Matrix", f"{len(self.matrix)} numbers", f"must have {rows} x {columns}", "correct the matrix"
            )
        for place, value in enumerate(self.matrix):
            if value:
                row, column = divmod(place, columns)
                self.found.edge(row + 1, column + 1 + self.first_mode, directed=True)["weight"] = value

    # --- words --------------------------------------------------------------------------------------------------------
    def _words(self, line: Line) -> Iterator[str]:
        """Words, and texts in quotation marks, in which `&#34;` is a quotation mark."""
        place = 0
        while place < len(line[1]):
            match = _TOKEN.match(line[1], place)
            if match is None:
                raise self._wrong(line, "has a quotation mark in a word", 'write &#34; for ", in quotation marks')
            word = match["text"] if match["text"] is not None else match["word"]
            if word is not None:
                yield _ENTITY.sub(_character, word)
            place = match.end()

    def _number(self, line: Line, word: str) -> int:
        number = int(word) if word.isascii() and word.isdecimal() and len(word) < 11 else 0
        if not 1 <= number <= self.count:
            raise self._wrong(
                line,
                f"{word[:20]!r} is no vertex: vertices have the numbers 1 to {self.count}",
                "number vertices from 1, and correct *Vertices or the line",
            )
        return number

    def _real(self, line: Line, word: str) -> float:
        if not _NUMBER.fullmatch(word):
            raise self._wrong(line, f"{word[:20]!r} is no number", "correct the line")
        return float(word)

    def _wrong(self, line: Line, said: str, fix: str) -> DataError:
        return self.found.wrong(f"line {line[0]}", line[1], said, fix)

    # --- the whole ----------------------------------------------------------------------------------------------------
    def graph(self) -> AttributedGraph:
        """The graph, once the text has ended."""
        if self.count < 0:
            raise self.found.wrong("*Vertices", None, "the file has no such section", "begin with *Vertices N")
        for number in range(1, self.count + 1):
            self.found.vertex(number).update(self.rows.get(number, {}))
        self._entries()
        names, notes = self._names()
        if self.first_mode:
            notes.append(
                f"a two-mode network: vertices 1 to {self.first_mode} are the first mode, and of one type "
                "with the others"
            )
        notes += [f"{self.num_times} times are not used"] if self.num_times else []
        return self.found.graph(names=names, display=_DISPLAY, notes=notes)

    def _names(self) -> tuple[list[Any] | None, list[str]]:
        """The labels, and no note, if they can be ids; else None and why not."""
        texts, without = list(self.labels.values()), self.count - len(self.labels)
        if texts and not without and len({*texts}) == len(texts):
            return [self.labels[number] for number in self.found.numbers], []
        for number, text in self.labels.items():
            self.found.vertices[number - 1].setdefault("label", text)
        if not texts:
            return None, []
        said = f"{without} vertices have none" if without else f"{len(texts) - len({*texts})} are those of others"
        return None, [f"ids are the numbers of vertices, not their labels: {said}"]


def _character(found: re.Match[str]) -> str:
    code = int(found[1])
    whole: str = found[0]
    return whole if code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)
