"""A first layer that runs ahead on CUDA: masks are those of its batch, also after later batches have begun."""

from __future__ import annotations

import pytest
import torch
from delayed_reference import epochs_of_rank, reference

from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]

SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}


@pytest.mark.parametrize("pull", ["projections", "aggregates"])
def test_losses_are_those_of_one_worker_on_a_cpu(ranks, pull):
    """With dropout of features and of attention, which GPUs draw again in the backward pass."""
    paradigm = {"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": pull, "delay": 2}
    config = {**small_config(MODELS["gat"], paradigm=paradigm), "feature_store": SLICED}
    on_gpu = {**config, "hardware": {**config["hardware"], "device": "cuda", "workers": 2}}
    found, expected = ranks(2).run(epochs_of_rank, on_gpu, nasty_graph, 2), reference(config, nasty_graph(), 2, 2)
    losses = [sum(step.loss for step in steps) for steps in zip(*(rank.steps for rank in found), strict=True)]
    assert losses == pytest.approx([step.loss for step in expected], rel=1e-10, abs=0)
    assert found[0].facts["first_layers"].startswith("pulled in the loop: NCCL")
