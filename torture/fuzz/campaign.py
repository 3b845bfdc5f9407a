"""Hours of malformed inputs, or one of them again."""

from __future__ import annotations

import csv
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle
from pathlib import Path

from torture.counts import Counts, Failure
from torture.fuzz import guided
from torture.fuzz.case import Kind
from torture.fuzz.kinds import archives, checkpoints, configs, datasets, overrides, pyg, records, slurm_output, sweeps
from torture.fuzz.runner import FAILED, FINE, Outcome, run_cases, seeds_of

KINDS: Mapping[str, Kind] = {
    "datasets": datasets.make,
    "pyg": pyg.make,
    "checkpoints": checkpoints.make,
    "records": records.make,
    "archives": archives.make,
    "sweeps": sweeps.make,
    "overrides": overrides.make,
    "slurm_output": slurm_output.make,
    "configs": configs.make,
}
# Seconds of one kind before the next has its turn; a child takes a second or so until its first case.
_TURN_S = 20.0
# Atheris instruments what it imports: ten seconds before the first of thousands of inputs a second.
_LEAST_GUIDED_S = 60.0
# The same line of code fails thousands of times in an hour; these many seeds of it are kept.
_SEEDS_PER_PLACE = 3


def fuzz(seconds: float, seed: int, folder: Path, kinds: Sequence[str] | None = None) -> Counts:
    """Work on inputs of all kinds in turns.

    Args:
        seconds: of all.
        seed: from which the seeds of all cases follow.
        folder: for files, where there is no `/dev/shm`.
        kinds: names of those wanted; None = all, with the guided ones where atheris is installed.

    Returns:
        `fuzz/<kind>/inputs`, and how many of them were accepted, refused, or ended otherwise.
    """
    end, counts = time.monotonic() + seconds, Counts()
    chosen = list(kinds or (*KINDS, *(guided.targets() if seconds >= _LEAST_GUIDED_S else ())))
    streams = {name: chain(_found_before(name), seeds_of(name, seed)) for name in chosen}
    kept: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="torture", dir=_quick_place(folder)) as place:
        for name in cycle(chosen):
            turn = min(_TURN_S, end - time.monotonic(), seconds / len(chosen))
            if turn <= 0:
                break
            if name not in KINDS:
                counts += guided.run_guided(name, next(streams[name]), turn, Path(place))
                continue
            outcomes = run_cases(name, KINDS[name], streams[name], turn, Path(place) / "cases")
            counts += _counted(name, outcomes, kept)
    return counts


def reproduce(kind: str, seed: int, folder: Path) -> str:
    """What becomes of one case, with its traceback; `seed` is the case's, as a failure names it."""
    if kind not in KINDS:
        counts = guided.run_guided(kind, seed, 600.0, folder)
        nothing = f"{kind} {seed}: nothing found in {dict(counts.numbers)}"
        return "\n".join(one.what for one in counts.failures) or nothing
    found = list(run_cases(kind, KINDS[kind], iter([seed]), 600.0, folder / "cases"))
    return "\n".join(f"{kind} {one.seed} {one.name}: {one.what}\n{one.text}".rstrip() for one in found)


def _found_before(kind: str) -> list[int]:
    """Seeds of failures that were fixed, `corpus.csv`: the first cases of every campaign."""
    with (Path(__file__).parent / "corpus.csv").open(encoding="utf-8", newline="") as file:
        return [int(row["seed"]) for row in csv.DictReader(file) if row["kind"] == kind]


def _quick_place(folder: Path) -> Path:
    """Where a thousand small folders are quickly made and removed: a disk takes ten milliseconds for each."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else folder


def _counted(name: str, outcomes: Iterator[Outcome], kept: Counter[str]) -> Counts:
    numbers, failures = Counter({f"fuzz/{name}/{word}": 0 for word in ("inputs", *FINE, *FAILED)}), []
    for outcome in outcomes:
        numbers[f"fuzz/{name}/inputs"] += 1
        numbers[f"fuzz/{name}/{outcome.name}"] += 1
        place = f"{name} {outcome.name} {outcome.where or outcome.what}"
        if outcome.name in FAILED and kept[place] < _SEEDS_PER_PLACE:
            kept[place] += 1
            what = f"{name}: {outcome.name}: {outcome.where} {outcome.what}"
            how = f"python -m torture fuzz --kind {shlex.quote(name)} --seed {outcome.seed}"
            print(f"{what}\n    {how}", file=sys.stderr, flush=True)
            failures.append(Failure("fuzz", what, outcome.seed, how))
    return Counts(dict(numbers), tuple(failures))
