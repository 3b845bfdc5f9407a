"""Attributes that GraphML and GEXF declare with a type, and the values of their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.graph_files.attributed import GraphCollector, Row, fill_missing

_WHOLE = {"int", "integer", "long", "short", "byte", "biginteger"}
_REAL = {"float", "double", "long double", "bigdecimal", "decimal"}
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_LIST = re.compile(r"(?:vector_|list)(?P<item>.+)")  # graph-tool's and GEXF's lists
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_CELL = 100  # bytes of memory for a value in a dictionary
Value = str | bool | int | float | list[str | bool | int | float] | None


@dataclass(frozen=True)
class AttributeDeclaration:
    """An attribute.

    Attributes:
        name: name that users know.
        kind: its type, such as `double`; unknown types are texts.
        owner: `node`, `edge`, `graph`, or another word.
        default: text that counts where the attribute is missing, or None.
        dynamic: whether it may have several values, each at its time.
    """

    name: str
    kind: str
    owner: str
    default: str | None = None
    dynamic: bool = False


def typed_value(kind: str, text: str) -> Value:
    """The value of a text. A missing number, an empty text, is None.

    Raises:
        ValueError: the text is no value of the type.
    """
    kind = kind.lower()
    listed = _LIST.fullmatch(kind)
    if listed and _is_number(listed["item"]):
        items = [item for item in re.split(r"[\s,;|]+", text.strip().strip("[]")) if item]
        return [value for item in items if not isinstance(value := typed_value(listed["item"], item), list | None)]
    if not _is_number(kind):
        return text
    word = text.strip()
    if not word:
        return None
    if kind in ("boolean", "bool"):
        if word.lower() not in _TRUTH:
            raise ValueError("true or false")
        return _TRUTH[word.lower()]
    if not _NUMBER.fullmatch(word):
        raise ValueError("a number")
    return int(word) if kind in _WHOLE else float(word)


def _is_number(kind: str) -> bool:
    return kind in _WHOLE or kind in _REAL or kind in ("boolean", "bool")


def put_value(collector: GraphCollector, row: Row, declaration: AttributeDeclaration, text: str) -> None:
    """Give a row the value of an attribute.

    Raises:
        DataError: the text is no value of the type, or the row has the attribute already.
    """
    if declaration.name in row:
        raise collector.wrong(
            f"{declaration.owner} attribute {declaration.name}",
            text,
            f"is given twice to one {declaration.owner}",
            "give each attribute once",
        )
    row[declaration.name] = _checked(collector, declaration, text)


def _checked(found: GraphCollector, one: AttributeDeclaration, text: str) -> Value:
    try:
        return typed_value(one.kind, text)
    except ValueError as error:
        raise found.wrong(
            f"{one.owner} attribute {one.name}",
            text,
            f"is no value of the type {one.kind}: {error}",
            "correct the value, or the type",
        ) from None


def apply_defaults(collector: GraphCollector, declared: list[AttributeDeclaration]) -> list[str]:
    """Give the declared defaults to vertices and edges without the attribute. Returns notes with counts.

    Raises:
        DataError: a default is no value of its type, or they need more memory than there is.
    """
    notes, owners = [], [declaration.owner for declaration in declared if declaration.default is not None]
    for owner, rows in (("node", collector.vertices), ("edge", collector.edges)):
        count = sum(declaration in (owner, "all") for declaration in owners)
        check_memory(_CELL * count * len(rows), f"{collector.path}: {count} defaults for {len(rows)} {owner}s")
    for declaration in declared:
        for owner, rows in (("node", collector.vertices), ("edge", collector.edges)):
            if declaration.default is None or declaration.owner not in (owner, "all"):
                continue
            count = fill_missing(rows, declaration.name, _checked(collector, declaration, declaration.default))
            notes += (
                [f"{declaration.name}: {count} {owner}s have the file's default {declaration.default[:40]!r}"]
                if count
                else []
            )
    return notes
