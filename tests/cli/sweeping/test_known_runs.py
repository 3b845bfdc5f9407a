"""Which runs that are there count as one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_in

from gnnexp.cli.sweeping.known_runs import Known, _launcher
from gnnexp.experiment.experiment import Experiment
from gnnexp.provenance.machine import this_node

SLURM = "gnnexp.launchers.slurm.SlurmLauncher"


def asking(**launcher: Any) -> Experiment:
    node = {"_target_": SLURM, "partition": "v100", "cpus_per_task": 4, **launcher}
    return experiment_in({"hardware": {"launcher": node}})


@pytest.mark.parametrize(("asked", "own"), [
    ({}, True), ({"time_min": 600, "account": "other", "max_requeues": 3}, True), ({"partition": "h100"}, False),
    ({"constraint": "fast"}, False), ({"cpus_per_task": 8}, False), ({"setup": ["module load other"]}, False),
])
def test_a_job_is_ones_own_where_the_same_was_asked_of_the_cluster(asked: dict[str, Any], own: bool) -> None:
    run = Known(Path("a"), _launcher(asking().config), this_node().kind, "16 cores of Xeon, V100", finished=True)
    assert run.is_own(asking(**asked), this_node().kind) is own
