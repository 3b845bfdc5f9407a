"""Draws repeat in a group of batches; training is exact with every mini-batch paradigm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from my_samplers.dependent import DependentOptions

from gnnexp.errors import ConfigError
from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import edges_of, nasty_graph
from gnnexp.testing.steps import MODELS, small_config

KEY = BatchKey(seed=3, epoch=1, step=8)


@pytest.mark.parametrize(("step", "is_same"), [(8, True), (11, True), (7, False), (12, False)])
def test_four_batches_have_the_same_draws(step, is_same):
    sampler = DependentOptions([2]).make()
    sampler.setup(Shard(nasty_graph()), 1)
    batches = [sampler.sample(torch.arange(60), key) for key in (KEY, replace(KEY, step=step))]
    first, second = (edges_of(batch.blocks[0]) for batch in batches)
    assert (first == second) == is_same
    assert batches[1].key.step == step, "dropout is drawn again"


def test_a_group_of_no_batches_is_refused():
    with pytest.raises(ConfigError, match=r"sampler\.repeats"):
        DependentOptions([2], repeats=0)


PARADIGMS = {
    "data": ({"assign": "even"}, "replicated"),
    "owner": ({"assign": "owner"}, "partitioned"),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, "partitioned"),
}


@pytest.mark.parametrize("way", PARADIGMS)
def test_training_is_exact(ranks, way):
    """GAT drops attention by edge identity, on a graph with parallel edges."""
    paradigm, topology = PARADIGMS[way]
    config = small_config(MODELS["gat"], paradigm=paradigm)
    config["sampler"] = {
        "_target_": "my_samplers.dependent.DependentOptions",
        "fanouts": [4, 3],
        "key": "global",
        "topology": topology,
    }
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=None if topology == "replicated" else 3, steps=6)
