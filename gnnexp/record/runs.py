"""Runs in the form that reports use: read from run directories, or from a file of their records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError, Problem
from gnnexp.provenance.machine import machine_of
from gnnexp.provenance.older import KEYS, as_today
from gnnexp.provenance.recorded import own_of, recorded_key
from gnnexp.record.records import (
    RESULT_FILE,
    figure_of_merit,
    load_result,
    read_epochs,
    run_dirs,
    warm,
    warm_median,
)

RUNS, REPORTS = Path("runs"), Path("reports")
# The name of the kind of machine in reports, used like a key of the configuration.
MACHINE = "machine"


@dataclass(frozen=True)
class RecordedRun:
    """One run that has ended.

    Attributes:
        path: the run directory.
        config: resolved configuration.
        provenance: origin of the result: code, data, machine, command.
        epochs: metrics of each epoch, in order.
        summary: metrics at the best validation epoch.
        status: `finished` or `failed`.
        reason: why it failed.
        kind: kind of the failure (`gnnexp.record.failure.Kind`).
        facts: what the paradigm decided before the first epoch (`Paradigm.facts`).
        nodes: machines of the ranks (`gnnexp.provenance.machine.Node`); empty in records without them.
        quality: quality of the partition, its cost, and facts of its method
            (`gnnexp.preparation.artifacts.read_quality`); empty if nothing was partitioned.
        kept: recorded lines of its epochs, if there is no run directory.
        ended: why training was over (`gnnexp.training.best.ending`); empty in earlier records and for failed runs.
    """

    path: Path
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    epochs: Sequence[Mapping[str, float]]
    summary: Mapping[str, float]
    status: str
    reason: str = ""
    kind: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, float] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] = ()
    kept: Sequence[Mapping[str, Any]] | None = None
    ended: str = ""

    def lines(self) -> Sequence[Mapping[str, Any]]:
        """The lines of all epochs: the record of each rank, losses of all steps, counts of batches (`read_epochs`).

        Raises:
            DataError: the file cannot be read.
        """
        return read_epochs(self.path) if self.kept is None else self.kept

    @property
    def key(self) -> str:
        """The key by which equal runs are recognised (`gnnexp.experiment.run_key`), empty if it was not recorded."""
        return recorded_key(self.provenance)

    @property
    def code(self) -> Mapping[str, str]:
        """Modules of the user that the ranks executed, with digests."""
        return own_of(self.provenance.get("code"))

    @property
    def outcome(self) -> str:
        """How it ended, in words: `finished`, `finished early: train.patience`, or the kind and reason of a failure."""
        if self.status == "finished":
            return f"finished early: train.{self.ended}" if self.ended in ("patience", "stop_below") else "finished"
        how = self.kind or self.status
        return f"{how}: {self.reason}" if self.reason else how

    @property
    def machine(self) -> str:
        """The kind of machine that its ranks ran on; equal nodes are of one kind."""
        return machine_of(self.nodes, self.config, self.provenance)

    @property
    def num_warm(self) -> int:
        """Number of epochs that `median` uses."""
        return len(warm(self.epochs))

    def median(self, metric: str) -> float:
        """Median of `metric` over the epochs that count (`records.warm`); NaN if it was not recorded."""
        return warm_median(self.epochs, metric)

    def best(self, split: str) -> tuple[str, float]:
        """Name and value of the task's metric on `split` at the best validation epoch (`acc/test`, 0.81)."""
        return figure_of_merit(self.summary, split, self.value("task.metric"))

    def value(self, key: str) -> str:
        """A config value by its dotted key, or the chosen file of a group (`dataset`), or the `machine`, as text."""
        if key == MACHINE:
            return self.machine
        key = KEYS.get(key, key)
        choices = self.provenance.get("choices", {})
        node: object = self.config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping):
            return str(node.get("name") or choices.get(key))
        if node is None and key == "system":
            return str(choices.get("paradigm"))
        return "null" if node is None else str(node)

    def label(self, key: str) -> str:
        """The same as `value`, but "none" for a partitioner that the run did not use: all configurations name one."""
        unused = key == "partitioner" and not self.provenance.get("partitioned", bool(self.quality))
        return "none" if unused else self.value(key)


def read_run(path: Path) -> RecordedRun:
    """The run in the directory `path`; its record has the shape that `gnnexp.record.shape` describes.

    Raises:
        DataError: the run has not ended, or its `result.json` is damaged.
    """
    file = path / RESULT_FILE
    try:
        result = load_result(path)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)[:200]
        fix = "run it again" if os.path.lexists(file) else "wait until it has ended, or name another run"
        raise DataError(
            Problem(str(path), RESULT_FILE, f"is not the directory of a run that has ended: {why}", fix)
        ) from None
    return run_of(path, result)


def run_of(path: Path, result: Mapping[str, Any], kept: Sequence[Mapping[str, Any]] | None = None) -> RecordedRun:
    """The run of a record that has the shape of `gnnexp.record.shape`; for `kept` see `RecordedRun`."""
    return RecordedRun(
        path=path,
        config=as_today(result["config"]),
        provenance=result["provenance"],
        epochs=[epoch["metrics"] for epoch in result["epochs"]],
        summary=result["summary"],
        status=result["status"],
        reason=result.get("reason") or "",
        kind=result.get("kind") or "",
        facts=result.get("paradigm") or {},
        quality=result.get("quality") or {},
        nodes=result.get("nodes") or (),
        kept=kept,
        ended=result.get("ended") or "",
    )


def find_runs(folder: Path = RUNS) -> list[RecordedRun]:
    """All runs below `folder` that have ended, oldest first; damaged ones are left out (`read_run` reports them)."""
    found = []
    for path in run_dirs(folder, RESULT_FILE):
        try:
            found.append(read_run(path))
        except DataError:
            continue
    return sorted(found, key=lambda run: str(run.provenance.get("date", "")))
