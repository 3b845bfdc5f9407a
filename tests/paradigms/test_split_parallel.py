"""Split parallelism is exact, and counts what GSplit counts."""

from __future__ import annotations

import pytest
from nasty_graphs import nasty_graph
from placement import assert_exact
from training import MODELS, small_config

SPLIT = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}


def _config(model: str, dtype: str = "float64", **changes):
    return small_config(MODELS[model], train={"dtype": dtype}, paradigm=SPLIT, **changes)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-10), ("float32", 1e-5)])
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, dtype, bound):
    assert_exact(ranks, size, nasty_graph, _config(model, dtype), bound, num_parts=size)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["skewed", "empty"])
def test_uneven_and_empty_parts(ranks, model, kind):
    assert_exact(ranks, 3, nasty_graph, _config(model), 1e-10, num_parts=3, kind=kind)
