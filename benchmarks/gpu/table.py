"""The results of all stages as one table of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.gpu.report import Row

_SHOWN = 12  # exact results of a stage with more rows are counted, not listed
_HEAD = ("stage", "what", "found", "target", "ceiling", "unit", "")


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Of what `report.read` returned, by stage."""
    lines = [_HEAD, *(line for name, one in found.items() for line in _lines(name, one))]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    facts: Mapping[str, Any] = next((one["facts"] for one in found.values() if one), {})
    where = f"{facts.get('device', 'nothing ran')}, torch {facts.get('torch')}, commit {facts.get('commit')}"
    note = "\nEMULATED: no figure of speed says anything" if facts.get("emulated") else ""
    return "\n".join([where + note, *text])


def _lines(stage: str, one: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if not one:
        yield (stage, "did not run", "", "", "", "", "MISSING")
        return
    rows = [Row(**row) for row in one["rows"]]
    figures = [row for row in rows if not row.ok or row.target is not None or row.unit not in ("", _ERROR)]
    exact = [row for row in rows if row.unit == _ERROR]
    if exact:
        good, worst = sum(row.ok for row in exact), max((row.value or 0.0 for row in exact), default=0.0)
        yield (stage, f"{good} of {len(exact)} exact", f"{worst:.2g}", "", "", "worst relative error", "")
    for row in figures:
        end = ("MISSED" if row.missed else "") if row.ok else f"WRONG: {row.words.strip().splitlines()[-1:]}"
        yield (stage, row.name, *map(_number, (row.value, row.target, row.ceiling)), row.unit, end)
    if not one["complete"]:
        yield (stage, f"cut short after {len(rows)} results", "", "", "", "", "INCOMPLETE")


_ERROR = "relative error"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
