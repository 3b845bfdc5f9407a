"""Edge weights and scales in one layer: against PyG's GCNConv, and against dense references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from weighted import signed_graph, typed_signed_graph

from gnnexp.api.pyg_twins import twin_of
from gnnexp.errors import ConfigError
from gnnexp.graph.block import Block
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.models import local
from gnnexp.models.gat import GATLayer, GATOptions
from gnnexp.models.gcn import GCNOptions
from gnnexp.models.gin import GINOptions
from gnnexp.models.layer import Degrees, Destinations, Layer
from gnnexp.models.model import Model, ModelOptions
from gnnexp.models.rgcn import BasisLayer, BlockDiagonalLayer, RGCNOptions
from gnnexp.models.sage import SAGEOptions
from gnnexp.models.sage_pool import SAGEPoolOptions
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import typed_graph, weighted_graph

CPU, WIDE, NARROW = torch.device("cpu"), (7, 19), (19, 5)


def single_loops() -> Graph:
    """Directed, parallel edges, weights of 0, and at most one self loop per vertex: PyG drops others."""
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, 40, 300), rng.integers(0, 36, 300)
    src, dst = src[src != dst], dst[src != dst]
    src, dst = np.append(src, np.arange(5)), np.append(dst, np.arange(5))
    weights = rng.random(src.size).astype(np.float32)
    weights[::9] = 0
    arrays = build_graph(src, dst, 40, duplicates="keep", weights=weights)
    return Graph(arrays.indptr, arrays.indices, edge_weights=arrays.weights)


def block_of(graph: Graph) -> Block:
    return block_for(graph, BlockNeeds())


def block_for(graph: Graph, needs: BlockNeeds) -> Block:
    (block,) = Expansion(graph, needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    return block


def layer_of(model: Model, graph: Graph, dims: tuple[int, int]) -> Layer:
    model.setup(dims[0], dims[1], Degrees.of(graph), seed=1, dtype=torch.float64, device=CPU)
    layer = model.layers[0]
    assert isinstance(layer, Layer)
    return layer


def made(kind: type[ModelOptions], kernel: str = "numba") -> Model:
    return kind(layers=1, dropout=0.0, kernel=kernel).make()  # type: ignore[call-arg]


def assert_same(found: Tensor, expected: Tensor, over: list[Tensor], reference: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    pull = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view(found.shape)
    gradients = (
        torch.autograd.grad(out, inputs, pull, retain_graph=True)
        for out, inputs in ((found, over), (expected, reference))
    )
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dims", [WIDE, NARROW], ids=["sums first", "projects first"])
@pytest.mark.parametrize("kernel", ["numba", "torch", "dgl"])
def test_gcn_is_that_of_pyg(kernel: str, dims: tuple[int, int]) -> None:
    graph = single_loops()
    layer, block = layer_of(made(GCNOptions, kernel), graph, dims), block_of(graph)
    # Here and not above: where a GPU is emulated, PyG cannot be imported.
    conv = pytest.importorskip("torch_geometric.nn").GCNConv(*dims).double()
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weight)
    x = torch.randn(graph.num_nodes, dims[0], dtype=torch.float64, requires_grad=True)
    edges = torch.stack((graph.indices.long(), graph.destinations().long()))
    assert graph.edge_weights is not None
    assert_same(
        local.preactivated_rows(layer, block, x, None),
        conv(x, edges, graph.edge_weights.double()),
        [x, layer.weight, layer.bias],
        [x, conv.lin.weight, conv.bias],
    )


def dense(graph: Graph, factors: Tensor) -> Tensor:
    """`[V, V]` matrix of destination and source, parallel edges summed."""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    return matrix.index_put((graph.destinations().long(), graph.indices.long()), factors.double(), accumulate=True)


@pytest.mark.parametrize("dims", [WIDE, NARROW], ids=["sums first", "projects first"])
@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
@pytest.mark.parametrize("make", [weighted_graph, signed_graph])
def test_sage_and_gin_are_sums_over_weighted_edges(make, scaled: bool, dims: tuple[int, int]) -> None:
    graph = make()
    weights, x = graph.edge_weights, torch.randn(graph.num_nodes, dims[0], dtype=torch.float64, requires_grad=True)
    scale = 0.5 + torch.rand(graph.num_edges) if scaled else torch.ones(graph.num_edges)
    block = replace(block_of(graph), scale=scale if scaled else None)
    messages, total = dense(graph, weights * scale) @ x, dense(graph, weights).sum(1, keepdim=True)
    mean = torch.where(total == 0, 0, messages / torch.where(total == 0, 1, total))

    sage = layer_of(made(SAGEOptions), graph, dims)
    expected = x @ sage.self_weight.T + mean @ sage.weight.T + sage.bias
    parameters = [x, sage.weight, sage.self_weight]
    assert_same(local.preactivated_rows(sage, block, x, None), expected, parameters, parameters)
    if scaled:  # the control: scale in the divisor is another result
        wrong = messages / dense(graph, weights * scale).sum(1, keepdim=True).where(total != 0, 1)
        assert (wrong - mean).abs().max() > 0.1

    gin = layer_of(made(GINOptions), graph, dims)
    mixed = (messages + x) @ gin.weight.T
    expected = torch.relu(mixed + gin.inner_bias) @ gin.outer.T + gin.bias
    parameters = [x, gin.weight, gin.outer]
    assert_same(local.preactivated_rows(gin, block, x, None), expected, parameters, parameters)


def edges_with(graph: Graph, loops: bool) -> tuple[Tensor, Tensor, Tensor]:
    """`(src, dst, weight)` of all edges, and of a loop of weight 1 for every vertex after them."""
    assert graph.edge_weights is not None
    src, dst, weight = graph.indices.long(), graph.destinations().long(), graph.edge_weights.double()
    if not loops:
        return src, dst, weight
    own = torch.arange(graph.num_nodes)
    return torch.cat((src, own)), torch.cat((dst, own)), torch.cat((weight, torch.ones(graph.num_nodes).double()))


@pytest.mark.parametrize("dims", [WIDE, NARROW], ids=["sums first", "projects first"])
@pytest.mark.parametrize("kernel", ["numba", "torch", "dgl"])
@pytest.mark.parametrize("loops", [True, False], ids=["loops", ""])
def test_gat_is_that_of_dgl(kernel: str, dims: tuple[int, int], loops: bool) -> None:
    """Parallel edges, self loops and weights below 0. The heads of an output layer are averaged."""
    dgl = pytest.importorskip("dgl")
    graph, options = signed_graph(), GATOptions(layers=1, out_heads=3, self_loops=loops, kernel=kernel)
    layer, block = layer_of(options.make(), graph, dims), block_for(graph, options.needs)
    assert isinstance(layer, GATLayer) and layer.bias is not None
    src, dst, weight = edges_with(graph, loops)
    conv = dgl.nn.pytorch.GATConv(*dims, 3, negative_slope=layer.slope, allow_zero_in_degree=True).double()
    with torch.no_grad():
        conv.fc.weight.copy_(layer.weight)
        conv.attn_l.copy_(layer.src_attention)
        conv.attn_r.copy_(layer.dst_attention)
        conv.bias.zero_()
    x = torch.randn(graph.num_nodes, dims[0], dtype=torch.float64, requires_grad=True)
    rows = conv(dgl.graph((src, dst), num_nodes=graph.num_nodes), x, edge_weight=weight).mean(1)
    assert_same(
        local.preactivated_rows(layer, block, x, None),
        rows,
        [x, layer.weight],
        [x, conv.fc.weight],
    )
    stages = local.edge_weights(layer, block, layer_keys(layer, x))
    torch.testing.assert_close(
        layer.mix(Destinations.of(block, stages[1]), layer.sum_projected(block, x, stages[0]), None), rows
    )


def layer_keys(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    keys = layer.keys(x)
    assert keys is not None
    return keys[0].contiguous(), keys[1].contiguous()


def test_gat_without_weights_is_gat_with_weights_of_one() -> None:
    graph, options = signed_graph(), GATOptions(layers=1, out_heads=3)
    plain, ones = (replace(graph, edge_weights=held) for held in (None, torch.ones(graph.num_edges)))
    x = torch.randn(graph.num_nodes, 7, dtype=torch.float64)
    found, expected = (
        local.preactivated_rows(layer_of(options.make(), it, WIDE), block_for(it, options.needs), x, None)
        for it in (ones, plain)
    )
    assert torch.equal(found, expected)


def counts_of(graph: Graph, norm_by: str) -> Tensor:
    """`[E, 1]`: number of in-edges of the edge's destination, of its relation or of any."""
    assert graph.edge_types is not None
    kinds = graph.destinations().long() * 8 + (graph.edge_types.long() if norm_by == "relation" else 0)
    return torch.bincount(kinds)[kinds].double().unsqueeze(1)


def relational(graph: Graph, dims: tuple[int, int], **options: Any) -> tuple[Layer, Block]:
    made = RGCNOptions(layers=1, **options)
    return layer_of(made.make(), graph, dims), block_for(graph, made.needs)


@pytest.mark.parametrize("dims", [(8, 20), (20, 4)], ids=["sums first", "projects first"])
@pytest.mark.parametrize("kernel", ["numba", "torch"])
@pytest.mark.parametrize("norm_by", ["relation", "vertex"])
@pytest.mark.parametrize("decomposition", ["basis", "block"])
def test_rgcn_is_that_of_dgl(decomposition: str, norm_by: str, kernel: str, dims: tuple[int, int]) -> None:
    dgl, graph = pytest.importorskip("dgl"), typed_signed_graph()
    layer, block = relational(graph, dims, decomposition=decomposition, norm_by=norm_by, bases=4, kernel=kernel)
    assert isinstance(layer, BasisLayer | BlockDiagonalLayer) and graph.edge_types is not None
    conv = dgl.nn.pytorch.RelGraphConv(*dims, 6, {"basis": "basis", "block": "bdd"}[decomposition], 4).double()
    with torch.no_grad():
        if isinstance(layer, BasisLayer):
            conv.linear_r.coeff.copy_(layer.coefficients)
            conv.linear_r.W.copy_(layer.weight.view(4, dims[1], dims[0]).transpose(1, 2))
        else:
            conv.linear_r.W.copy_(layer.weight.flatten(1))
        conv.loop_weight.copy_(layer.self_weight.T)
        conv.h_bias.zero_()
    src, dst, weight = edges_with(graph, False)
    x = torch.randn(graph.num_nodes, dims[0], dtype=torch.float64, requires_grad=True)
    norm = weight.unsqueeze(1) / counts_of(graph, norm_by)
    assert_same(
        local.preactivated_rows(layer, block, x, None),
        conv(dgl.graph((src, dst), num_nodes=graph.num_nodes), x, graph.edge_types.long(), norm),
        [x],
        [x],
    )


@pytest.mark.parametrize("decomposition", ["basis", "block"])
def test_rgcn_is_that_of_pyg_with_weighted_messages(decomposition: str) -> None:
    """PyG's layers multiply messages with `edge_weight`, and then take means over the number of edges."""
    pyg, graph, dims = pytest.importorskip("torch_geometric.nn"), typed_signed_graph(), (8, 12)
    layer, block = relational(graph, dims, decomposition=decomposition, bases=4)
    src, dst, weight = edges_with(graph, False)

    class Weighted(pyg.FastRGCNConv):  # type: ignore[misc]
        def message(self, x_j: Tensor, edge_type: Tensor, edge_index_j: Tensor) -> Tensor:
            return super().message(x_j, edge_type, edge_index_j) * weight.unsqueeze(1)  # type: ignore[no-any-return]

    twin = twin_of(layer, weighted=False)
    conv = Weighted(*dims, 6, **{"num_bases" if decomposition == "basis" else "num_blocks": 4}).double()
    conv.load_state_dict(dict(twin.values))
    x = torch.randn(graph.num_nodes, dims[0], dtype=torch.float64, requires_grad=True)
    assert graph.edge_types is not None
    expected = conv(x, torch.stack((src, dst)), graph.edge_types.long())
    assert_same(local.preactivated_rows(layer, block, x, None), expected, [x], [x])


@pytest.mark.parametrize("kernel", ["numba", "torch"])
@pytest.mark.parametrize(
    "model",
    [
        lambda kernel: GATOptions(layers=1, dropout=0.0, attention_dropout=0.0, heads=2, kernel=kernel).make(),
        lambda kernel: RGCNOptions(layers=1, dropout=0.0, decomposition="basis", kernel=kernel).make(),
        lambda kernel: RGCNOptions(layers=1, dropout=0.0, decomposition="block", kernel=kernel).make(),
        lambda kernel: GCNOptions(layers=1, dropout=0.0, kernel=kernel).make(),
    ],
    ids=["gat", "basis", "block", "gcn"],
)
def test_scale_multiplies_messages_and_nothing_else(model, kernel: str) -> None:
    """With the same scale on all edges the neighbours' part is that many times as large."""
    graph = typed_graph()
    built = model(kernel)
    (block,) = Expansion(graph, built.options.needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    layer = layer_of(built, graph, (8, 8))
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    empty = replace(block, scale=torch.zeros(block.num_edges))
    twice = replace(block, scale=torch.full((block.num_edges,), 2.0))
    alone, once, doubled = (local.preactivated_rows(layer, it, x, None) for it in (empty, block, twice))
    torch.testing.assert_close(doubled - alone, 2 * (once - alone))
    assert (once - alone).abs().max() > 0.1


def test_others_refuse_weights() -> None:
    with pytest.raises(ConfigError, match="no formula for edge weights") as refused:
        layer_of(SAGEPoolOptions(layers=1).make(), weighted_graph(), (8, 8))
    assert "dataset.weights=false" in str(refused.value)


def test_what_is_kept_of_a_block_goes_with_it() -> None:
    graph = weighted_graph()
    layer, block = layer_of(made(GCNOptions), graph, WIDE), block_of(graph)
    x = torch.randn(graph.num_nodes, WIDE[0], dtype=torch.float64)
    local.preactivated_rows(layer, block, x, None)
    assert layer.backend is not None and len(layer.backend.constants) == 1
    first, _ = local.edge_weights(layer, block, None)
    assert local.edge_weights(layer, block, None)[0] is first
    del block
    assert not len(layer.backend.constants)
