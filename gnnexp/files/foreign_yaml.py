"""Limits of YAML that somebody else may have written, checked before a loader makes objects of it.

A few aliases of aliases stand for more nodes than fit into memory, merge keys copy what they name, and parsers follow
nesting by recursion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# gnnexp's own files have at most 2 KiB, 4 levels and 60 nodes.
MAX_BYTES, MAX_DEPTH, MAX_NODES = 1 << 20, 100, 100_000
_LONG = 1 << 10  # characters of a text that count as one more node: an alias may repeat it
ALLOWED = f"at most {MAX_BYTES} bytes, {MAX_DEPTH} levels and {MAX_NODES} nodes, none of them in itself"


def excess_of(content: bytes) -> str:
    """The exceeded limit in words, or an empty text. What is no YAML in UTF-8 exceeds none: its loader says so."""
    from yaml import YAMLError, parse

    if len(content) > MAX_BYTES:
        return f"more than {MAX_BYTES} bytes"
    try:
        return _excess(parse(content.decode()))
    except (UnicodeDecodeError, YAMLError):
        return ""


def parse_yaml(content: bytes) -> object:
    """The plain data of a YAML text that somebody else may have written.

    Raises:
        ValueError: it is no YAML, or exceeds a limit; the text says which.
    """
    import yaml

    if excess := excess_of(content):
        raise ValueError(f"{excess}: allowed are {ALLOWED}")
    try:
        return yaml.safe_load(content)
    # Damaged values of tags, such as `!!bool maybe` or `!!int ""`, end in these errors of the loader.
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None


def _excess(events: Iterable[Any]) -> str:
    """The exceeded limit in words, or an empty text. Aliases count as the nodes that they stand for."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    nodes, begun = 0, list[tuple[str | None, int]]()
    named: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, AliasEvent):
            if event.anchor in [anchor for anchor, _ in begun]:
                return f"*{event.anchor} inside of itself"
            nodes += named.get(event.anchor, 0)
        elif isinstance(event, NodeEvent):
            own = 1 + len(getattr(event, "value", "")) // _LONG
            nodes += own
            named[event.anchor] = own
            if isinstance(event, CollectionStartEvent):
                begun.append((event.anchor, nodes - own))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = begun.pop()
            named[anchor] = nodes - before
        if len(begun) > MAX_DEPTH or nodes > MAX_NODES:
            return f"more than {MAX_DEPTH} levels" if len(begun) > MAX_DEPTH else f"more than {MAX_NODES} nodes"
    return ""
