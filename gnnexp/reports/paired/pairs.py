"""Pairs of runs of two systems: the same seed, graph, split and size. Runs without a partner are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.record.runs import RecordedRun

Key = tuple[str, ...]


@dataclass(frozen=True)
class RunPairs:
    """The runs of two systems, matched.

    Attributes:
        pairs: the run of the system that is compared with, and the rival's run.
        alone: finished runs without a partner.
        interleaved: whether no run of a pair began before all runs of the pair before it had begun, so that the
            machine's moods hit both systems alike. False below two pairs.
    """

    pairs: tuple[tuple[RecordedRun, RecordedRun], ...]
    alone: tuple[RecordedRun, ...]
    interleaved: bool


def match_runs(against: Sequence[RecordedRun], rival: Sequence[RecordedRun]) -> RunPairs:
    """Pair finished runs by `pair_key`; several runs of one key (`--rerun`) in the order in which they were made."""
    ours, theirs = _by_key(against), _by_key(rival)
    pairs = [pair for key in ours if key in theirs for pair in zip(ours[key], theirs[key], strict=False)]
    paired = {id(run) for pair in pairs for run in pair}
    alone = tuple(run for run in (*against, *rival) if id(run) not in paired)
    return RunPairs(tuple(pairs), alone, _interleaved(pairs))


def pair_key(run: RecordedRun) -> Key:
    """What the runs of a pair share: seed, bytes and options of the data with their split, model, ranks, machine."""
    data = str(run.provenance.get("dataset_key") or json.dumps(run.config.get("dataset"), sort_keys=True, default=str))
    ranks = (run.value("hardware.nodes"), run.value("hardware.workers"))
    return (run.value("seed"), data, run.value("model"), run.value("task"), *ranks, run.machine)


def _by_key(runs: Sequence[RecordedRun]) -> dict[Key, list[RecordedRun]]:
    runs_of: dict[Key, list[RecordedRun]] = {}
    for run in sorted(runs, key=_date):
        runs_of.setdefault(pair_key(run), []).append(run)
    return runs_of


def _interleaved(pairs: Sequence[tuple[RecordedRun, RecordedRun]]) -> bool:
    """Whether the pairs were made one after the other; runs of which no date is known were not."""
    spans = sorted((min(map(_date, pair)), max(map(_date, pair))) for pair in pairs)
    dated = all(first for first, _ in spans)
    return dated and len(spans) > 1 and all(spans[k][1] < spans[k + 1][0] for k in range(len(spans) - 1))


def _date(run: RecordedRun) -> str:
    return str(run.provenance.get("date", ""))
