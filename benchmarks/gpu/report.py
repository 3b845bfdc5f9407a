"""One stage's file: it is written whole after every result, so a stage that is killed leaves what it had.

And the results of all stages as one table of plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnexp.record.records import write_json

SCHEMA = 1
# Facts that a result must share with a later call to be taken instead of being found again.
_SAME = ("source", "device", "emulated", "torch", "quick")
ERROR = "relative error"  # the unit of results that are exact: they are counted, not listed
NOT_RUN = "not run"  # the beginning of the words of a row that a machine or a version does not allow
_HEAD = ("stage", "what", "found", "target", "ceiling", "unit", "")


@dataclass(frozen=True)
class Row:
    """One result.

    Attributes:
        name: of what was done; no other row of the stage has it.
        ok: whether it is as it should be; a missed target is not wrong.
        value: what was found, in `unit`: a median where there are `values`.
        unit: of the three figures.
        target: that is wanted, None if none is.
        ceiling: what the device can do at most, None where nobody says.
        words: what is wrong, or a remark.
        values: of every repetition.
        at_most: whether the target is the most that is wanted, as for seconds.
    """

    name: str
    ok: bool = True
    value: float | None = None
    unit: str = ""
    target: float | None = None
    ceiling: float | None = None
    words: str = ""
    values: tuple[float, ...] = ()
    at_most: bool = False

    @property
    def missed(self) -> bool:
        """Whether there is a target that it does not reach."""
        if self.target is None or self.value is None:
            return False
        return self.value > self.target if self.at_most else self.value < self.target


class Report:
    """`<stage>.json`.

    Attributes:
        folder: where it lies.
        facts: what it was found on.
        rows: so far, those of an earlier call that was cut short first.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], *, again: bool) -> None:
        self._path, self.folder, self.facts = path, path.parent, dict(facts)
        found = {} if again else read(path)
        same = all(found.get("facts", {}).get(name) == facts[name] for name in _SAME)
        self.rows = [Row(**{**row, "values": tuple(row["values"])}) for row in found.get("rows", ())] if same else []
        self.write(complete=False)

    def has(self, name: str) -> bool:
        """Whether there is a good row of this name."""
        return any(row.name == name and row.ok for row in self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Write them down, each instead of an earlier one of its name."""
        added = list(rows)
        names = {row.name for row in added}
        self.rows = [*(row for row in self.rows if row.name not in names), *added]
        self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Atomically."""
        write_json(
            self._path,
            {
                "schema": SCHEMA,
                "stage": self._path.stem,
                "complete": complete,
                "facts": self.facts,
                "rows": [asdict(row) for row in self.rows],
            },
        )


def read(path: Path) -> dict[str, Any]:
    """What a file holds; nothing if there is none, or it is of another version."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found if found.get("schema") == SCHEMA else {}


def is_done(found: Mapping[str, Any], source: str, *, quick: bool) -> bool:
    """Whether a stage is complete and good, by the files that there are now."""
    facts = found.get("facts", {})
    return (
        bool(found.get("complete"))
        and facts["source"] == source
        and facts["quick"] == quick
        and all(row["ok"] for row in found["rows"])
    )


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
    figures = [
        row
        for row in rows
        if not row.ok or row.target is not None or row.unit not in ("", ERROR) or row.words.startswith(NOT_RUN)
    ]
    exact = [row for row in rows if row.unit == ERROR]
    if exact:
        good, worst = sum(row.ok for row in exact), max((row.value or 0.0 for row in exact), default=0.0)
        yield (stage, f"{good} of {len(exact)} exact", f"{worst:.2g}", "", "", "worst relative error", "")
    for row in figures:
        left_out = row.words if row.words.startswith(NOT_RUN) else ""
        end = ("MISSED" if row.missed else left_out) if row.ok else f"WRONG: {row.words.strip().splitlines()[-1:]}"
        yield (stage, row.name, *map(_number, (row.value, row.target, row.ceiling)), row.unit, end)
    if not one["complete"]:
        yield (stage, f"cut short after {len(rows)} results", "", "", "", "", "INCOMPLETE")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
