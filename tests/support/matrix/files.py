"""The files that keep the cases and the refused pairs: `PYTHONPATH=tests/support python -m matrix` writes them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from matrix.axes import AXES, Case, Pair, named
from matrix.cover import covered, pairs_of

FOLDER = Path(__file__).parents[2] / "paradigms"
CASES, REFUSED = FOLDER / "matrix_cases.csv", FOLDER / "matrix_refused.csv"
SEED = 0


def read_cases() -> dict[Case, bool]:
    """The cases, and whether `make test` (or, on a GPU, `make test-emulated-gpu`) runs them."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return {tuple(row[axis] for axis in AXES): row["quick"] == "yes" for row in csv.DictReader(file)}


def read_refused() -> dict[Pair, str]:
    """Pairs that no case has, and why."""
    with REFUSED.open(encoding="utf-8", newline="") as file:
        return {((a, x), (b, y)): reason for a, x, b, y, reason in list(csv.reader(file))[1:]}


def drawn() -> tuple[dict[Case, bool], dict[Pair, str]]:
    """The contents of files that are written now (minutes)."""
    from matrix.configs import refusal

    cases, refused = covered(AXES, refusal, SEED)
    quick = set(_quick(cases))
    return {case: case in quick for case in sorted(cases)}, refused


def _quick(cases: Iterable[Case]) -> Iterable[Case]:
    """Of every way one case on each device: the one with most pairs that those before it do not have."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((named(case)["way"], named(case)["device"]), []).append(case)
    have: set[Pair] = set()
    for group in groups.values():
        best = max(group, key=lambda case: len(pairs_of(AXES, case) - have))
        have |= pairs_of(AXES, best)
        yield best


def write(cases: Mapping[Case, bool], refused: Mapping[Pair, str]) -> None:
    """Both files."""
    _write(CASES, [*AXES, "quick"], ([*case, "yes" if quick else "no"] for case, quick in cases.items()))
    _write(
        REFUSED,
        ["axis", "value", "other_axis", "other_value", "reason"],
        ([*first, *second, reason] for (first, second), reason in refused.items()),
    )


def _write(path: Path, head: list[str], rows: Iterable[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
