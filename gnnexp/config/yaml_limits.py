"""What a YAML file may cost: it is walked event by event before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gnnexp.errors import Problem
from gnnexp.files.regular import read_limited

# The product's own have 2 KiB, 4 levels and 60 nodes.
MAX_BYTES, MAX_DEPTH, MAX_NODES = 1 << 20, 100, 100_000


def check_yaml(file: Path) -> Problem | None:
    """What is wrong with the kind, size, depth or references of `file`; that it is no YAML is left to its reader.

    A few aliases of aliases stand for more nodes than any memory holds, and parsers follow nesting by recursion.
    """
    from yaml import YAMLError, parse

    try:
        excess = _excess(parse(read_limited(file, MAX_BYTES).decode()))
    except OSError as error:
        allowed = f"must be a regular file that you may read, of at most {MAX_BYTES} bytes"
        return Problem(str(file), error.strerror, allowed, "correct the path or the rights, or remove the file")
    except (UnicodeDecodeError, YAMLError):
        return None
    allowed = f"at most {MAX_BYTES} bytes, {MAX_DEPTH} levels and {MAX_NODES} nodes, none of them in itself"
    return Problem(str(file), excess, allowed, "make it smaller, or remove the file") if excess else None


def _excess(events: Iterable[Any]) -> str:
    """What there is too much of, aliases counted as what they stand for; or nothing."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    nodes, begun = 0, list[tuple[str | None, int]]()
    named: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, AliasEvent):
            if event.anchor in [anchor for anchor, _ in begun]:
                return f"*{event.anchor} inside of itself"
            nodes += named.get(event.anchor, 0)
        elif isinstance(event, NodeEvent):
            nodes += 1
            named[event.anchor] = 1
            if isinstance(event, CollectionStartEvent):
                begun.append((event.anchor, nodes - 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = begun.pop()
            named[anchor] = nodes - before
        if len(begun) > MAX_DEPTH or nodes > MAX_NODES:
            return f"more than {MAX_DEPTH} levels" if len(begun) > MAX_DEPTH else f"more than {MAX_NODES} nodes"
    return ""
