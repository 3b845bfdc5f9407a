"""Which runs that are there count as one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_in
from run_folder import write_job

from gnnexp.cli.sweeping import known_runs
from gnnexp.cli.sweeping.known_runs import ExistingRun, ReuseRules, _launcher
from gnnexp.experiment.experiment import Experiment
from gnnexp.provenance.machine import this_node
from gnnexp.provenance.recorded import RESULT_VERSION
from gnnexp.record.records import load_job

SLURM = "gnnexp.launchers.slurm.SlurmLauncher"


def asking(**launcher: Any) -> Experiment:
    node = {"_target_": SLURM, "partition": "v100", "cpus_per_task": 4, **launcher}
    return experiment_in({"hardware": {"launcher": node}})


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ({}, True),
        ({"time_min": 600, "account": "other", "max_requeues": 3}, True),
        ({"partition": "h100"}, False),
        ({"constraint": "fast"}, False),
        ({"cpus_per_task": 8}, False),
        ({"setup": ["module load other"]}, False),
    ],
)
def test_a_job_is_ones_own_where_the_same_was_asked_of_the_cluster(asked: dict[str, Any], own: bool) -> None:
    run = ExistingRun(Path("a"), _launcher(asking().config), this_node().kind, "16 cores of Xeon, V100", finished=True)
    assert run.is_own(asking(**asked), this_node().kind) is own


def test_before_a_case_only_its_own_runs_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write_job(tmp_path / str(number), run_key=f"key-{number:02d}", result_version=RESULT_VERSION)
    parsed: list[Path] = []
    monkeypatch.setattr(known_runs, "load_job", lambda path: parsed.append(path) or load_job(path))
    found = known_runs.known_runs({"key-07"}, ReuseRules(folders=(tmp_path,)))
    assert [run.path for run in found["key-07"]] == parsed == [tmp_path / "7"]
