"""Both layers are compared with one worker by gnnexp's helpers: losses of all steps and every gradient, in float64."""

from __future__ import annotations

import pytest
import torch
from my_layers.gated import GatedOptions
from my_layers.gatv2 import GATv2Options

from gnnexp.graph.block import Block
from gnnexp.models.layer import Degrees
from gnnexp.testing.graphs import random_graph
from gnnexp.testing.ways import SLICED, WAYS, assert_exact_in

GATED = {"_target_": "my_layers.gated.GatedOptions", "heads": 2, "residual": True, "norm": True}
GATV2 = {"_target_": "my_layers.gatv2.GATv2Options"}
# The ways in which one rank has all in-edges of a destination, with whole source rows.
WHOLE_DESTINATIONS = [
    way for way in WAYS if way not in (*SLICED, "vertex_cut", "coupled", "coupled_in_chunks", "offload_projected")
]


# Ways that differ from another one in where rows lie and in how many chunks there are.
LONG = ("offload", "offload_projected", "cache", "hybrid", "chunks", "coupled_in_chunks", "projections")


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.slow if way in LONG else ()) for way in WAYS])
def test_the_gated_layer_is_exact_under_every_paradigm(ranks, way):
    assert_exact_in(ranks, way, GATED, steps=4)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if way in LONG else ()) for way in WHOLE_DESTINATIONS]
)
def test_gatv2_is_exact_where_a_destination_is_whole(ranks, way):
    assert_exact_in(ranks, way, GATV2, steps=4)


@pytest.mark.parametrize("kind", [GatedOptions, GATv2Options])
def test_it_is_the_formula_edge_by_edge(kind):
    """The layer equals plain loops, on a multigraph with isolated vertices."""
    graph = random_graph(12, 30, 1)
    model = kind(hidden=8, layers=1, dropout=0.0).make()
    model.setup(5, 3, Degrees.of(graph), seed=0, dtype=torch.float64, device=torch.device("cpu"))
    h = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out = model.run_layer(0, Block(graph.indptr, graph.indices, torch.arange(12), 12), h, None)
    expected = (gated_by_loops if kind is GatedOptions else gatv2_by_loops)(model.layers[0], graph, h)
    assert (out - expected).abs().max() < 1e-12


def in_edges(graph, v):
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()


def gated_by_loops(layer, graph, h):
    out = []
    for v in range(12):
        gates = [torch.sigmoid(layer.gate[0] @ h[u] + layer.gate[1] @ h[v]) for u in in_edges(graph, v)]
        sums = sum((gate * (layer.weight @ h[u]) for gate, u in zip(gates, in_edges(graph, v), strict=True)), 0)
        out.append(layer.self_weight @ h[v] + (sums / sum(gates) if gates else 0) + layer.bias)
    return torch.stack(out)


def gatv2_by_loops(layer, graph, h):
    out = []
    for v in range(12):
        x = [layer.source(h[u]) for u in in_edges(graph, v)]
        scores = [layer.attention[0] @ torch.nn.functional.leaky_relu(row + layer.destination(h[v]), 0.2) for row in x]
        shares = torch.softmax(torch.stack(scores), 0) if scores else []
        out.append(layer.own(h[v]) + sum((share * row for share, row in zip(shares, x, strict=True)), 0))
    return torch.stack(out)
