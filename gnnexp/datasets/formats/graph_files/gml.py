"""GML, as NetworkX, igraph, NetworKit, Gephi and Mark Newman's network data have it.

Parallel edges stay whether or not the file says `multigraph 1`. Integers have any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.entities import name2codepoint
from pathlib import Path
from typing import Any

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph, GraphCollector, Row
from gnnexp.datasets.formats.graph_files.growing import growing
from gnnexp.errors import DataError, Problem

_TOKEN = re.compile(
    r"(?P<skip>\s+|#[^\n]*)|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|[+-](?:inf|nan)\b)|"
    r'(?P<word>[A-Za-z_][\w.\-]*)|"(?P<text>[^"]*)"|(?P<open>\[)|(?P<close>\])',
    re.IGNORECASE | re.ASCII,
)
_ENTITY = re.compile(r"&(?:#(\d{1,7})|#x([0-9A-Fa-f]{1,6})|([A-Za-z][0-9A-Za-z]*));")
_ONE_ITEM = "_networkx_list_start"  # NetworkX writes it before the only value of a list
_BARE = ("id", "label", "source", "target", "name")  # texts that some writers leave without quotation marks
_MAX_DEPTH = 64
_INTEGER = re.compile(r"-?[1-9]\d*", re.ASCII)
Pairs = list[tuple[str, Any]]


def read_gml(path: Path, text: str) -> AttributedGraph:
    """The graph in `text`. Labels are the ids if each vertex has another one, else the numbers are.

    Raises:
        DataError: the text is no GML, or has a construct that gnnexp does not read. Names the construct.
    """
    graphs = [value for key, value in _parse(path, text) if key == "graph" and isinstance(value, list)]
    if len(graphs) != 1:
        raise DataError(
            Problem(
                f"{path}, graph", f"{len(graphs)} graphs", "the file must have one graph", "keep one graph in the file"
            )
        )
    pairs, collector = graphs[0], GraphCollector(path, "GML")
    directed = bool(dict(pairs).get("directed", 0))
    for key, value in pairs:
        if key not in ("node", "edge"):
            continue
        if not isinstance(value, list):
            raise collector.wrong(key, value, "must have its attributes in brackets", f"write {key} [ ... ]")
        row = _row(value)
        if key == "node":
            collector.vertex(row.pop("id", None)).update(row)
        else:
            collector.edge(row.pop("source", None), row.pop("target", None), directed=directed).update(row)
    notes = [*_large(collector.vertices, "nodes"), *_large(collector.edges, "edges")]
    names, said = _names(collector)
    return collector.graph(names=names, display=frozenset(["label"]), notes=[*said, *notes])


def _parse(path: Path, text: str) -> Pairs:
    """Keys and values; the value of a key with brackets is again a list of them."""
    outer: list[Pairs] = [[]]
    key: str | None = None
    for kind, value, place in growing(_tokens(path, text), f"{path}, words"):
        if kind == "word" and key is None:
            key = value
        elif kind == "close" and key is None and len(outer) > 1:
            outer.pop()
        elif key is None or kind == "close" or len(outer) > _MAX_DEPTH:
            raise _unexpected(path, text, place)
        elif kind == "open":
            inner: Pairs = []
            outer[-1].append((key, inner))
            outer.append(inner)
            key = None
        else:
            outer[-1].append((key, _value(path, text, place, kind, value, key)))
            key = None
    if key is not None or len(outer) > 1:
        raise _unexpected(path, text, len(text))
    return outer[0]


def _tokens(path: Path, text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and place of each token."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unexpected(path, text, place)
        kind = match.lastgroup
        if kind != "skip" and kind is not None:
            yield kind, match[kind], place
        place = match.end()


def _unexpected(path: Path, text: str, place: int) -> DataError:
    line = text.count("\n", 0, place) + 1
    said = text[place : place + 40].partition("\n")[0] or "the end of the file"
    return DataError(
        Problem(
            f"{path}, line {line}",
            said,
            "is not expected here: GML has a key and a value, or a key and more of them in brackets",
            "correct the line, or copy the file again",
        )
    )


def _value(path: Path, text: str, place: int, kind: str, word: str, key: str) -> Any:  # noqa: ANN401
    if kind == "text":
        return _ENTITY.sub(_character, word)
    if kind == "number":
        return int(word) if word.lstrip("+-").isdigit() else float(word)
    if word.lower() in ("nan", "inf"):
        return float(word)
    if key not in _BARE:
        raise _unexpected(path, text, place)
    return word


def _character(found: re.Match[str]) -> str:
    """The character of an entity; what is none stays as it is."""
    if found[3] is not None:
        code = {**name2codepoint, "apos": 39}.get(found[3])
    else:
        code = int(found[1]) if found[1] is not None else int(found[2], 16)
    whole: str = found[0]
    return whole if code is None or code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)


def _row(pairs: Pairs) -> Row:
    """Attributes by name; one that comes several times is a list, one in brackets a dictionary."""
    row: Row = {}
    times: dict[str, int] = {}
    for key, value in pairs:
        times[key] = times.get(key, 0) + 1
        item = _row(value) if isinstance(value, list) else value
        if times[key] == 1:
            row[key] = item
        else:
            row[key] = [*([row[key]] if times[key] == 2 else row[key]), item]
    return {
        key: value[1:] if isinstance(value, list) and value[0] == _ONE_ITEM else value for key, value in row.items()
    }


def _large(rows: Sequence[Row], owner: str) -> list[str]:
    """Make numbers of integers that NetworkX writes as texts: those outside of 32 bits. Returns notes with counts.

    Only attributes of which the other values are numbers, at least one: else they may be names in digits.
    """
    notes = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [(row, row[name]) for row in rows if name in row]
        texts = [(row, text) for row, text in values if isinstance(text, str)]
        if not texts or len(texts) == len(values) or not all(isinstance(text, str | int | float) for _, text in values):
            continue
        if all(_INTEGER.fullmatch(text) and not -(2**31) <= int(text) < 2**31 for _, text in texts):
            for row, text in texts:
                row[name] = int(text)
            notes.append(f"{name}: {len(texts)} {owner} have an integer beyond 32 bits as a text, read as a number")
    return notes


def _names(collector: GraphCollector) -> tuple[list[Any] | None, list[str]]:
    """The labels, and no note, if they can be ids; else None and why not."""
    labels = [row.get("label") for row in collector.vertices]
    texts = [str(label) for label in labels if label is not None]
    if len(texts) == len(labels) == len(set(texts)) and not any(isinstance(label, list | dict) for label in labels):
        for row in collector.vertices:
            row.pop("label", None)
        return labels, []
    if not texts:
        return None, []
    said = (
        f"{len(labels) - len(texts)} nodes have no label"
        if len(texts) < len(labels)
        else (f"{len(texts) - len(set(texts))} labels are those of other nodes")
    )
    return None, [f"ids are those of the file, not its labels: {said}"]
