"""The rows of a report: runs that differ only in what the report does not show, and in what else they differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.labels import differing_keys, flat_values

# The key whose values a report compares.
SYSTEM = "system"
_TRAINED = ("dataset", "task", "model", "seed", MACHINE)
# Keys that name a row if the user chooses none; those whose values differ are used, in this order.
_KEYS = ("system", "dataset", "model", "sampler", "partitioner", "hardware.nodes", "hardware.workers")
# Keys that say what is trained and on what: rows that differ in them are never compared.
_ALWAYS_SHARED = (
    *("dataset", "dataset.name", "dataset.shape", "dataset.scale", "task", "model"),
    *("hardware.nodes", "hardware.workers", MACHINE),
)
# At most this many keys in which runs of one row differ are named.
_MOST_NAMED = 4


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in what the table does not show (usually the seed).

    Attributes:
        labels: the values of the row's keys.
        runs: the finished runs.
        failed: the other runs.
    """

    labels: tuple[str, ...]
    runs: tuple[RecordedRun, ...]
    failed: tuple[RecordedRun, ...]

    @property
    def name(self) -> str:
        """The name on a figure's axis, one label per line."""
        return "\n".join(self.labels)

    @property
    def verdict(self) -> str:
        """Text in place of numbers if no run finished: `OOM` as in the papers' tables, or how the runs ended."""
        kinds = {run.kind for run in self.failed}
        ends = {"out of memory": "OOM", "diverged": "diverged", "interrupted": "interrupted"}
        return ends.get(kinds.pop() if len(kinds) == 1 else "", "failed")

    def mean(self, metric: str) -> float:
        """Mean over the runs of each run's median; NaN if no run recorded the metric."""
        values = [value for run in self.runs if not math.isnan(value := run.median(metric))]
        return statistics.fmean(values) if values else math.nan


def row_keys(runs: Sequence[RecordedRun], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Keys that name a row: the `wanted` ones, else those whose values differ, else the system.

    The machine is added if there are several kinds.
    """
    if wanted:
        return with_machine(wanted, runs)
    differing = tuple(key for key in _KEYS if len({run.label(key) for run in runs}) > 1)
    return with_machine(differing or ("system",), runs)


def with_machine(keys: Sequence[str], runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """`keys`, and the machine if `runs` were made on several kinds, so that no row averages their seconds."""
    several = len({run.machine for run in runs}) > 1 and MACHINE not in keys
    return (*keys, MACHINE) if several else tuple(keys)


def group_runs(runs: Sequence[RecordedRun], keys: Sequence[str]) -> list[RunGroup]:
    """Groups of runs with the same values of `keys`, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[RecordedRun]] = {}
    for run in runs:
        grouped.setdefault(tuple(run.label(key) for key in keys), []).append(run)
    return [
        RunGroup(
            labels,
            tuple(run for run in members if run.status == "finished"),
            tuple(run for run in members if run.status != "finished"),
        )
        for labels, members in grouped.items()
    ]


def mixtures(groups: Sequence[RunGroup]) -> list[str]:
    """Config keys (except seeds) and code in which runs of one group differ, so that their mean mixes unlike runs."""
    differing: dict[str, None] = {}
    for group in groups:
        runs = (*group.runs, *group.failed)
        keys = differing_keys([flat_values(run.config) for run in runs])
        other_classes = {key.removesuffix("._target_") for key in keys if key.endswith("._target_")}
        differing |= dict.fromkeys(
            sorted(
                other_classes
                | {
                    key
                    for key in keys
                    if key.rpartition(".")[2] not in ("seed", "path", "_target_")
                    and not any(key.startswith(f"{name}.") for name in other_classes)
                }
            )
        )
        differing |= dict.fromkeys(f"the code of {name}" for name in sorted(differing_keys([run.code for run in runs])))
    names = list(differing)
    more = len(names) - _MOST_NAMED
    return names if more <= 0 else [*names[:_MOST_NAMED], f"{more} more keys"]


def repeated_runs(groups: Sequence[RunGroup]) -> int:
    """The number of runs that repeat another run of their row (`--rerun`), with equal configuration, data and code."""
    known = [[key for run in group.runs if (key := run.provenance.get("run_key"))] for group in groups]
    return sum(len(keys) - len(set(keys)) for keys in known)


def contender_place(keys: Sequence[str]) -> int | None:
    """The place of the key whose values are compared: the system, or the only key if it is a way of training.

    Data, tasks and models are what is trained. Whoever has several of them as rows does not ask which is fastest.
    """
    if SYSTEM in keys:
        return list(keys).index(SYSTEM)
    return 0 if len(keys) == 1 and keys[0].partition(".")[0] not in _TRAINED else None


def setting_places(groups: Sequence[RunGroup], keys: Sequence[str], system: int) -> list[int]:
    """The labels that two rows must share: what is trained, on what, and whatever some system has several of.

    Others belong to the system, which is the label at the place `system`.
    """
    systems: dict[str, list[RunGroup]] = {}
    for group in groups:
        systems.setdefault(group.labels[system], []).append(group)
    return [
        place
        for place in range(len(groups[0].labels))
        if place != system
        and (
            any(len({labels_at(row, [place]) for row in rows}) > 1 for rows in systems.values())
            or (keys[place] in _ALWAYS_SHARED and len({group.labels[place] for group in groups}) > 1)
        )
    ]


def labels_at(group: RunGroup, places: Sequence[int]) -> tuple[str, ...]:
    """Some labels of a row."""
    return tuple(group.labels[place] for place in places)


def telling_keys(groups: Sequence[RunGroup], keys: Sequence[str]) -> tuple[str, ...]:
    """The keys without those that only repeat the system, such as its sampler. All, if several things name the rows."""
    place = contender_place(keys)
    if place is None or not groups:
        return tuple(keys)
    shared = setting_places(groups, keys, place)
    return tuple(key for number, key in enumerate(keys) if number == place or number in shared)
