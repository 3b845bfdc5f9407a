"""Lists of edges and of neighbours, in which a space separates names: names with spaces are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gnnexp.errors import DataError, Problem

_FIX = "write GraphML (networkx.write_graphml), or names without spaces"
_BEGUN = re.compile(r"[(\[][^()\[\]]*,")  # the first word of a tuple or a list, such as (1, of (1, 2)


def refuse_wide_rows(path: Path, rows: Sequence[str]) -> None:
    """Refuse rows of an edge list with attributes in braces that have other than two words before them.

    Raises:
        DataError: a row has more. Shows the first.
    """
    wide = next((text for text in rows if "{" in text and len(text.partition("{")[0].split()) > 2), None)
    if wide is not None:
        raise DataError(Problem(str(path), wide[:60], "has more than two names: a space separates names", _FIX))


def refuse_names_in_parts(path: Path, lines: Sequence[str], rows: Sequence[Sequence[str]], *, written: bool) -> None:
    """Refuse a list of neighbours whose words are parts of names.

    Args:
        path: the file, for messages.
        lines: its lines.
        rows: the words of each line.
        written: whether NetworkX has written it: each vertex begins a line then.

    Raises:
        DataError: a word begins a tuple, or is no vertex that begins a line. Shows the first.
    """
    first = {row[0] for row in rows}
    for line, row in zip(lines, rows, strict=True):
        part = next((word for word in row if _BEGUN.fullmatch(word) or (written and word not in first)), None)
        if part is not None:
            raise DataError(
                Problem(str(path), line[:60], f"has {part!r}, a part of a name: a space separates names", _FIX)
            )
