"""Push-pull parallelism is exact, whatever is pulled, and moves what its formulas say."""

from __future__ import annotations

import pytest
from nasty_graphs import nasty_graph
from placement import assert_exact
from training import MODELS, small_config

PUSH_PULL = {"_target_": "gnnexp.paradigms.push_pull.PushPull"}
SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedStore"}


def _config(model: str, dtype: str = "float64", pull: str = "auto", **changes):
    config = small_config(MODELS[model], train={"dtype": dtype}, paradigm={**PUSH_PULL, "pull": pull}, **changes)
    return {**config, "feature_store": SLICED}


@pytest.mark.parametrize("size", [1, 2, 3, 4])  # 13 dimensions: none of them divides
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pull", ["projections", "aggregates"])
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-10), ("float32", 1e-5)])
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, pull, dtype, bound):
    assert_exact(ranks, size, nasty_graph, _config(model, dtype, pull), bound)
