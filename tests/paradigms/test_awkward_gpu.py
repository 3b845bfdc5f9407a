"""What was wrong on CPU once, on CUDA: chunks without edges, decoders of vertices, skips from sparse features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from decoded_vertices import DECODED
from sparse_graphs import DENSE_ONLY, as_wide_as_hidden

from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import half_without_in_edges, nasty_graph
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import WAYS, config_in, placed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]


def _on_gpu(way: str, model: dict[str, Any], **more: Any) -> dict[str, Any]:
    return config_in(way, model, hardware={"workers": 2, "device": "cuda"}, **more)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("way", [way for way in WAYS if "chunks" in WAYS[way][0]])
def test_chunks_without_edges(ranks, way, model, steps):
    config = _on_gpu(way, MODELS[model])
    config["paradigm"] = {**config["paradigm"], "chunks": 9}
    partition = placed(way, half_without_in_edges(), 2)
    assert_exact(ranks, 2, half_without_in_edges, config, 1e-10, partition=partition, steps=steps)


@pytest.mark.parametrize("way", WAYS)
def test_a_users_task_with_a_decoder_of_vertices(ranks, way, steps):
    config = _on_gpu(way, MODELS["sage"], task=DECODED)
    curves, reference = assert_exact(
        ranks, 2, nasty_graph, config, 1e-10, steps=steps, partition=placed(way, nasty_graph(), 2)
    )
    learned = [name for name in reference.gradients if name.startswith("decoder.")]
    assert all(float(curve.gradients[name].abs().max()) > 0 for curve in curves for name in learned) and learned


@pytest.mark.parametrize("way", [way for way in WAYS if way not in DENSE_ONLY])
def test_a_skip_connection_from_as_many_sparse_features_as_hidden_columns(ranks, way, steps):
    config = _on_gpu(way, {**MODELS["sage"], "residual": True, "norm": True})
    assert_exact(ranks, 2, as_wide_as_hidden, config, 1e-10, steps=steps, partition=placed(way, as_wide_as_hidden(), 2))
