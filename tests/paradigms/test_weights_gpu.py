"""Weighted graphs and modules with PyG's signature on CUDA, against one CPU worker."""

from __future__ import annotations

import pytest
import torch

from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.on_gpu import GpuCase, train_on_gpu
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.ways import WAYS, config_in, placed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_weights_are_those_of_the_cpu(ranks: RankPools, way: str, model: str) -> None:
    found = train_on_gpu(ranks, GpuCase(2, model, way, weighted=True), steps=3)
    assert not found.problems


@pytest.mark.parametrize("module", ["PairMean", "SquareGates"])
@pytest.mark.parametrize("way", ["data", "split", "communicate", "offload"])
def test_modules_train_on_a_device(ranks: RankPools, way: str, module: str) -> None:
    model = {"_target_": "gnnexp.models.pyg.PyGOptions", "module": f"plain_modules.{module}"}
    config = config_in(way, model, hardware={"workers": 2, "device": "cuda"})
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, steps=3, partition=placed(way, nasty_graph(), 2))
