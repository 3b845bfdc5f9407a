"""The runs of a sweep: runs that were made here, else runs whose records the paper's folder contains."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnexp.config.folders import papers_with
from gnnexp.record.columnar import read_records
from gnnexp.record.records import RESULT_FILE, read_state
from gnnexp.record.runs import RUNS, RecordedRun, read_run, run_of

RECORDS_FILE = "records.parquet"


class SweepRuns(NamedTuple):
    """A sweep that was run.

    Attributes:
        state: what its last call left (`read_state`); kept records have no layout of the report.
        runs: the runs of its cases that have ended, in the sweep's order, each once.
        here: whether the sweep was run on this machine's files, and not read from kept records.
    """

    state: dict[str, Any]
    runs: Sequence[RecordedRun]
    here: bool = True


def sweeps_run(names: Sequence[str], folder: Path = RUNS) -> dict[str, SweepRuns]:
    """The sweeps among `names` that were run, by name.

    Raises:
        DataError: a sweep's state, a run or a file of records is damaged.
    """
    states = {name: folder / "sweeps" / f"{name}.json" for name in names}
    here = {name: ran_here(read_state(file), folder.parent) for name, file in states.items() if os.path.lexists(file)}
    sweeps = dict(here)
    for paper, file in papers_with(RECORDS_FILE).items():
        if wanted := [name for name in names if name not in here and name.startswith(f"{paper}_")]:
            records = read_records(file, wanted)
            runs = {run: run_of(Path(run), result, result["epochs"]) for run, result in records.results.items()}
            sweeps |= {
                name: SweepRuns(dict(state), [runs[run] for run in _each(state)], here=False)
                for name, state in records.states.items()
            }
    return sweeps


def ran_here(state: dict[str, Any], folder: Path = Path()) -> SweepRuns:
    """A sweep that was run here, from its state; run directories are below `folder`."""
    paths = [folder / run for run in _each(state)]
    return SweepRuns(state, [read_run(path) for path in paths if os.path.lexists(path / RESULT_FILE)])


def _each(state: Mapping[str, Any]) -> list[str]:
    """The directories of a sweep's runs, each once: several cases may share a run."""
    return list(dict.fromkeys(case["run_dir"] for case in state["cases"] if case["run_dir"]))
