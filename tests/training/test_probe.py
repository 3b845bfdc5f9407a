"""The memory probe's trainer is thrown away: nothing keeps it, with its buffers and copies of data, in memory."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.trainer import Trainer
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import TENSOR, WAYS, config_in, placed
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import probe_memory


def _left(config: dict[str, Any], partition: Partition | None) -> list[str]:
    """Trainers that are still there after the probe."""
    before = {id(one) for one in gc.get_objects() if isinstance(one, Trainer)}
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(config), Artifacts(nasty_graph(), partition), Path(folder), read_environment())
        probe_memory(job)
        gc.collect()
        found = [type(one).__name__ for one in gc.get_objects() if isinstance(one, Trainer) and id(one) not in before]
        job.comm.release()
    return found


# One of each kind of trainer; others differ in where rows lie and in how many chunks there are.
QUICK = ("data", "split", "aggregates", "communicate", "chunks", "coupled", "offload")


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way in QUICK else pytest.mark.slow) for way in WAYS])
def test_no_trainer_outlives_the_probe(ranks, way: str) -> None:
    config = config_in(way, MODELS["gcn"], hardware={"workers": 2})
    assert ranks(2).run(_left, config, placed(way, nasty_graph(), 2)) == [[], []]


def test_nor_does_one_with_a_pipeline(ranks) -> None:
    """The pipeline is shared between trainers."""
    config = config_in("coupled", MODELS["gcn"], hardware={"workers": 2})
    config["paradigm"] = {"_target_": TENSOR, "mode": "decoupled", "chunks": 3, "pipeline": True}
    assert ranks(2).run(_left, config, None) == [[], []]


@pytest.mark.slow
def test_nor_does_dgls(ranks) -> None:
    """DDP keeps its hook in C++, where the garbage collector does not look."""
    pytest.importorskip("dgl")
    config = small_config(MODELS["sage"], hardware={"workers": 2})
    config["paradigm"] = {"_target_": "gnnexp.paradigms.dgl_reference.DGLReference"}
    assert ranks(2).run(_left, config, None) == [[], []]
