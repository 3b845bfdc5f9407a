"""On a GPU a loss reads labels that are there: nothing crosses for it and nobody waits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from experiments import assembled
from links_config import WAYS as LINK_WAYS
from links_config import config_of, plain_links

from emulated_gpu import counting, is_wanted
from gnnexp.comm.environment import read_environment
from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import WAYS, config_in, placed
from gnnexp.training.assemble import Artifacts

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu counts these")]


def _in_losses(config: dict[str, Any], way: str, graph: Graph, folder: Path, monkeypatch) -> Counter[str]:
    """What the device did in all losses of an epoch; `losses`, how many there were."""
    config["hardware"]["device"] = "cuda"
    job, trainer = assembled(config, Artifacts(graph, placed(way, graph, 1)), folder, read_environment())
    found: Counter[str] = Counter()
    loss_sum = job.task.loss_sum

    def counted(*args):
        with counting() as counts:
            loss = loss_sum(*args)
        found.update({**counts.totals, "losses": 1})
        return loss

    monkeypatch.setattr(job.task, "loss_sum", counted)
    for batch in trainer.batches(0):
        trainer.forward_backward(batch)
    job.comm.release()
    return found


def _nothing_crossed(found: Counter[str]) -> None:
    assert found["losses"] > 0 and found["launches"] > 0
    assert (found["waits"], found["h2d_copies"], found["d2h_copies"]) == (0, 0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_crosses_for_labels_of_vertices(way, tmp_path, monkeypatch):
    _nothing_crossed(_in_losses(config_in(way, MODELS["sage"]), way, nasty_graph(), tmp_path, monkeypatch))


@pytest.mark.parametrize("way", LINK_WAYS)
@pytest.mark.parametrize("task", ["dot", "distmult"])
def test_nothing_crosses_for_labels_of_links(way, task, tmp_path, monkeypatch):
    _nothing_crossed(_in_losses(config_of(way, "sage", task), way, plain_links(), tmp_path, monkeypatch))
