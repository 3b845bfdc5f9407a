"""Relational layers against the paper's formula, edge by edge in plain Python, and dense; their counts of relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from experiments import setting_and_facts
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.models import local
from gnnexp.models.layer import Degrees
from gnnexp.models.local import mixed_rows
from gnnexp.models.rgcn import BasisLayer, BlockDiagonalLayer, RelationalLayer, RGCNOptions
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.graphs import nasty_graph, typed_graph

GRAPH = typed_graph()
CASES: dict[str, dict[str, Any]] = {
    "basis": {"bases": 3},
    "one_basis": {"bases": 1},
    "basis_by_vertex": {"bases": 2, "norm_by": "vertex"},
    "block": {"decomposition": "block", "blocks": 4},
    "one_block": {"decomposition": "block", "blocks": 1},
    "columns": {"decomposition": "block", "blocks": 7, "norm_by": "vertex"},
}


def made(case: str | dict[str, Any], kernel: str = "numba", out: int = 7) -> RelationalLayer:
    options = CASES[case] if isinstance(case, str) else case
    model = build(
        {"_target_": "gnnexp.models.rgcn.RGCNOptions", "layers": 1, "kernel": kernel, **options}, RGCNOptions
    ).make()
    model.setup(GRAPH.num_features, out, Degrees.of(GRAPH), seed=0, dtype=torch.float64, device=torch.device("cpu"))
    (layer,) = model.layers
    assert isinstance(layer, RelationalLayer)
    return layer


def block_of(fanout: int) -> Block:
    sampler = FusedOptions(fanouts=[fanout]).make()
    sampler.setup(Shard(GRAPH, needs=RGCNOptions().needs), 1)
    order = torch.randperm(GRAPH.num_nodes, generator=torch.Generator().manual_seed(1)).int()
    return sampler.sample(order[:50], BatchKey(1, 0, 0), 50).blocks[0]


def edges_of(block: Block) -> Iterator[tuple[int, int, int]]:
    """(source's position, destination, type)."""
    assert block.edge_types is not None
    for v in range(block.num_dst):
        for e in range(int(block.indptr[v]), int(block.indptr[v + 1])):
            yield int(block.sources[e]), v, int(block.edge_types[e])


def matrices(layer: RelationalLayer) -> Tensor:
    """`[R, out, Din]`, whole: W_r."""
    if isinstance(layer, BasisLayer):
        bases = layer.weight.view(layer.num_weights, layer.out_dim, layer.in_dim)
        return torch.einsum("rb,bod->rod", layer.coefficients, bases)
    assert isinstance(layer, BlockDiagonalLayer)
    rows, columns = (np.array_split(np.arange(size), layer.blocks) for size in (layer.in_dim, layer.out_dim))
    whole = torch.zeros(layer.weight.shape[0], layer.out_dim, layer.in_dim, dtype=torch.float64)
    for number, (ins, outs) in enumerate(zip(rows, columns, strict=True)):
        part = layer.weight[:, number, : len(ins), : len(outs)].transpose(1, 2)
        whole[:, outs[0] : outs[-1] + 1, ins[0] : ins[-1] + 1] = part
    return whole


def by_hand(layer: RelationalLayer, block: Block, h: Tensor) -> Tensor:
    """Section 2.1, an edge at a time."""
    edges, whole = list(edges_of(block)), matrices(layer)
    by_vertex = layer.norm_by == "vertex"
    alike = Counter(v if by_vertex else (v, r) for _, v, r in edges)
    out = [h[v] @ layer.self_weight.T for v in range(block.num_dst)]
    for u, v, r in edges:
        out[v] = out[v] + whole[r] @ h[u] / alike[v if by_vertex else (v, r)]
    return torch.stack(out)


@pytest.mark.parametrize("kernel", ["numba", "torch", "dgl"])
@pytest.mark.parametrize("fanout", [-1, 3])
@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_formula_edge_by_edge_with_every_gradient(case, fanout, kernel):
    layer, block = made(case, kernel), block_of(fanout)
    h = torch.randn(block.num_src, GRAPH.num_features, dtype=torch.float64).requires_grad_()
    found, expected = mixed_rows(layer, block, h, None), by_hand(layer, block, h)
    assert (found - expected).abs().max() <= 1e-12
    weights = torch.randn_like(found)
    wanted = [h, *(p for name, p in layer.named_parameters() if name != "bias")]
    for a, b in zip(
        torch.autograd.grad((found * weights).sum(), wanted),
        torch.autograd.grad((expected * weights).sum(), wanted),
        strict=True,
    ):
        assert (a - b).abs().max() <= 1e-11


@pytest.mark.parametrize("blocks", [None, 1, 13])
def test_equal_to_dgls_convolution_forward_and_backward(blocks):
    """`RelGraphConv`, whose users hand it the norm."""
    conv = pytest.importorskip("dgl.nn.pytorch").RelGraphConv
    from dgl_blocks import block_to_dgl

    decomposition = {"bases": 2} if blocks is None else {"decomposition": "block", "blocks": blocks}
    layer, block = made(decomposition, out=26), block_of(-1)
    theirs = conv(13, 26, GRAPH.num_relations, "basis" if blocks is None else "bdd", blocks or 2).double()
    same = {"weight": "linear_r.W", "self_weight": "loop_weight", "bias": "h_bias", "coefficients": "linear_r.coeff"}
    ours = dict(layer.named_parameters())

    def turned(name: str, value: Tensor) -> Tensor:
        """As DGL stores it."""
        if name == "weight" and blocks is None:
            value = value.view(2, 26, 13).transpose(1, 2)
        value = value.T if name == "self_weight" else value
        return value.reshape(theirs.get_parameter(same[name]).shape)

    h = torch.randn(block.num_src, 13, dtype=torch.float64)
    with torch.no_grad():
        for name, value in ours.items():
            theirs.get_parameter(same[name]).copy_(turned(name, value))
    norm = block.relation_degree.double().reciprocal().unsqueeze(1)
    found = layer.preactivation(mixed_rows(layer, block, h, None))
    expected = theirs(block_to_dgl(block), h, block.edge_types.long(), norm)
    assert (found - expected).abs().max() <= 1e-12
    weights = torch.randn_like(found)
    (expected * weights).sum().backward()
    gradients = torch.autograd.grad((found * weights).sum(), list(ours.values()))
    for name, gradient in zip(ours, gradients, strict=True):
        assert (theirs.get_parameter(same[name]).grad - turned(name, gradient)).abs().max() <= 1e-11, name


@pytest.mark.parametrize("case", [name for name in CASES if "bas" in name])
def test_project_first_equals_aggregate_first(case, monkeypatch):
    layer, block = made(case), block_of(3)
    h, outs = torch.randn(block.num_src, GRAPH.num_features, dtype=torch.float64), []
    for first in (True, False):
        monkeypatch.setattr(local, "aggregates_first", lambda *_, first=first: first)
        outs.append(mixed_rows(layer, block, h, None))
    assert torch.allclose(*outs, atol=1e-12)


@pytest.mark.parametrize("cuts", [(0, 5, 6, 13), (0, 0, 1, 13), (0, 4, 7, 10, 13)])
@pytest.mark.parametrize("case", CASES)
def test_slices_of_the_input_add_up_to_the_whole(case, cuts):
    layer, block = made(case), block_of(4)
    h = torch.randn(block.num_src, GRAPH.num_features, dtype=torch.float64)
    weight, _ = local.edge_weights(layer, block, None)
    slices = [slice(*pair) for pair in pairwise(cuts)]
    for phase in (lambda rows, dims: layer.sum_projected(block, rows, weight, dims), layer.project, layer.project_self):
        whole = phase(h, None)
        assert torch.allclose(sum(phase(h[:, dims], dims) for dims in slices), whole, atol=1e-12)


@pytest.mark.parametrize("case", ["block", "columns"])
def test_ranks_that_take_blocks_have_the_columns_that_follow(case):
    layer, block = made(case), block_of(4)
    h, cuts = torch.randn(block.num_src, GRAPH.num_features, dtype=torch.float64), layer.cuts
    whole = layer.aggregate_projected(block, h, None)
    for first, last in ((0, 2), (2, 3), (3, layer.blocks)):
        dims = slice(cuts.rows[first], cuts.rows[last])
        found = layer.aggregate_projected(block, h[:, dims], None, dims)
        assert torch.allclose(found, whole[:, cuts.sums[first] : cuts.sums[last]], atol=1e-12)


def test_columns_that_a_block_has_not_are_zero_and_take_no_gradient():
    layer, block = made("block"), block_of(-1)  # 13 columns in blocks of 4, 7 in blocks of 2
    assert isinstance(layer, BlockDiagonalLayer)
    mixed_rows(layer, block, torch.randn(block.num_src, 13, dtype=torch.float64), None).square().sum().backward()
    there = torch.zeros_like(layer.weight, dtype=torch.bool)
    for number, (ins, outs) in enumerate(zip((4, 3, 3, 3), (2, 2, 2, 1), strict=True)):
        there[:, number, :ins, :outs] = True
    assert layer.weight.grad is not None
    assert not layer.weight[~there].any() and not layer.weight.grad[~there].any()
    assert layer.weight[there].all() and layer.weight.grad[there].any()


def test_weights_are_weighed_anew_when_nothing_takes_a_gradient():
    """What inference kept of its first pass would be old in the next one."""
    layer, block = made("basis"), block_of(-1)
    assert isinstance(layer, BasisLayer)
    h = torch.randn(block.num_src, GRAPH.num_features, dtype=torch.float64)
    with torch.no_grad():
        mixed_rows(layer, block, h, None)
        layer.coefficients.mul_(2)
        assert torch.allclose(mixed_rows(layer, block, h, None), by_hand(layer, block, h), atol=1e-12)


@st.composite
def typed_blocks(draw: st.DrawFn) -> Block:
    rows = draw(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=7), max_size=6))
    indptr = torch.tensor([0, *np.cumsum([len(row) for row in rows], dtype=int).tolist()])
    sources, types = (torch.tensor([edge[i] for row in rows for edge in row], dtype=torch.int32) for i in (0, 1))
    return Block(indptr, sources, torch.arange(6), len(rows), edge_types=types)


@settings(max_examples=80, deadline=None)
@given(typed_blocks())
def test_pairs_of_relations_and_destinations(block):
    edges = list(edges_of(block))
    alike = Counter((r, v) for _, v, r in edges)
    assert block.relation_degree.tolist() == [alike[r, v] for _, v, r in edges]
    pairs, found = block.relations, sorted(alike)
    types = [r for r, count in enumerate(pairs.counts) for _ in range(count)]
    assert list(zip(types, pairs.destinations.tolist(), strict=True)) == found
    assert pairs.degree.tolist() == [alike[pair] for pair in found]
    assert [(u, found[pair]) for u, pair, _ in _plain_edges(pairs.incoming)] == [
        (u, pair) for pair in found for u, v, r in edges if (r, v) == pair
    ]
    assert [(v, found[pair]) for pair, v, _ in _plain_edges(pairs.outgoing)] == sorted(
        ((v, (r, v)) for r, v in found), key=lambda edge: (edge[0], edge[1])
    )
    assert block.relations is pairs


def _plain_edges(block: Block) -> list[tuple[int, int, int]]:
    ends = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr.diff()).tolist()
    return [(u, v, 0) for u, v in zip(block.sources.tolist(), ends, strict=True)]


# --- what makes no sense ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"decomposition": "none"}, "model.decomposition"),
        ({"norm_by": "degree"}, "model.norm_by"),
        ({"bases": 0}, "model.bases"),
        ({"blocks": 0}, "model.blocks"),
        ({"decomposition": "block", "blocks": 20, "hidden": 16}, "model.blocks"),
    ],
)
def test_arguments_that_make_no_sense(options, key):
    with pytest.raises(ConfigError) as error:
        RGCNOptions(**options).make().setup(
            13, 4, Degrees.of(GRAPH), seed=0, dtype=torch.float64, device=torch.device("cpu")
        )
    assert [problem.key for problem in error.value.problems] == [key] and error.value.problems[0].fix


def test_data_that_does_not_fit():
    config = {"model": {"_target_": "gnnexp.models.rgcn.RGCNOptions"}}
    (problem,) = RGCNOptions().check_data(*setting_and_facts(config, nasty_graph()))
    assert problem.key == "model" and "edge types" in problem.allowed and "model=sage" in problem.fix
    assert not RGCNOptions(decomposition="block", blocks=4).check_data(*setting_and_facts(config, GRAPH))
    (problem,) = RGCNOptions(decomposition="block", blocks=5).check_data(*setting_and_facts(config, GRAPH))
    assert problem.key == "model.blocks" and "classes has 4" in problem.allowed and "model.blocks=4" in problem.fix
