"""Layers on the contract: equal to DGL's convolutions, linear where they say so, the same in any order of phases."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnexp.experiment.build import build
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.models import local
from gnnexp.models.layer import Degrees, Layer
from gnnexp.models.local import (
    constant_mix_back,
    destination_rows,
    edge_weights,
    has_constant_mix,
    mixed_rows,
    mixed_sums,
)
from gnnexp.models.model import Model, ModelOptions
from gnnexp.samplers.full import FullOptions
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.graphs import nasty_graph, typed_graph
from gnnexp.testing.steps import MODELS

CPU = torch.device("cpu")
GRAPH = nasty_graph()
KEY = BatchKey(seed=1, epoch=0, step=0)


def make_model(name: str, graph: Graph = GRAPH, **options) -> Model:
    node = {"hidden": 8, "layers": 2, "dropout": 0.0, "kernel": "numba", **MODELS[name], **options}
    model = build(node, ModelOptions).make()
    model.setup(
        graph.num_features,
        graph.num_classes,
        Degrees.of(graph),
        seed=0,
        dtype=torch.float64,
        device=CPU,
    )
    return model


def full_batch(model: Model, graph=GRAPH) -> Batch:
    sampler = FullOptions().make()
    sampler.setup(Shard(graph, needs=model.options.needs), model.num_layers)
    ids = torch.arange(graph.num_nodes, dtype=graph.indices.dtype)
    return sampler.sample(ids, KEY, graph.num_nodes)


def sampled_block(model: Model) -> Block:
    sampler = FusedOptions(fanouts=[3]).make()
    sampler.setup(Shard(GRAPH, needs=model.options.needs), 1)
    return sampler.sample(torch.arange(5, 40, dtype=torch.int32), KEY, 35).blocks[0]


def inputs(block: Block) -> torch.Tensor:
    return GRAPH.features[block.src_ids.long()].double()


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_dgl_forward_and_backward(name):
    from dgl_blocks import block_to_dgl  # Python 3.12 has no DGL

    from gnnexp.paradigms.dgl_layers import DGLStack

    options = {"self_loops": False} if name in ("gcn", "gat") else {}
    if name == "gat":
        options["attention_dropout"] = 0.0
    if name == "gcn":
        options["degrees"] = "graph"
    model = make_model(name, **options)
    batch = full_batch(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01  # biases and eps too
    stack = DGLStack(model)
    h = inputs(batch.blocks[0])
    model.train()
    ours = model(batch, h)
    theirs = stack([block_to_dgl(block) for block in batch.blocks], h)
    assert (ours - theirs).abs().max() < 1e-12
    weights = torch.randn_like(ours)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():  # carry DGL's gradients over with the mapping that carries parameters
        for parameter in stack.parameters():
            parameter.copy_(parameter.grad)
    stack.store_to(model)
    for parameter_name, value in expected.items():
        assert (model.get_parameter(parameter_name) - value).abs().max() < 1e-11, parameter_name


@pytest.mark.parametrize("name", MODELS)
def test_types_of_edges_are_not_seen(name):
    """A model without relations takes a typed graph as a homogeneous one: parallel edges of several types all count."""
    typed = typed_graph()
    plain = replace(typed, edge_types=None)
    assert torch.equal(Degrees.of(typed).in_degree, Degrees.of(plain).in_degree)
    ends = torch.stack([typed.indices.long(), typed.destinations().long()], 1)
    assert ends.unique(dim=0).shape[0] < typed.num_edges, "there are parallel ones"
    outs = []
    for graph in (typed, plain):
        model = make_model(name, graph=graph).eval()
        batch = full_batch(model, graph)
        outs.append(model(batch, graph.features[batch.input_ids.long()].double()))
    assert torch.equal(*outs)


@pytest.mark.parametrize("name", MODELS)
def test_projection_is_linear_in_slices_of_the_input(name):
    layer = make_model(name).layers[0]
    assert isinstance(layer, Layer)
    h = GRAPH.features.double()
    cuts = [slice(0, 5), slice(5, 6), slice(6, 13)]
    parts = sum(layer.project(h[:, dims], dims) for dims in cuts)
    assert torch.allclose(parts, layer.project(h), atol=1e-13)
    if (own := layer.project_self(h)) is not None:
        assert torch.allclose(sum(layer.project_self(h[:, dims], dims) for dims in cuts), own, atol=1e-13)
    if (keys := layer.keys(h)) is not None:
        sliced = [layer.keys(h[:, dims], dims) for dims in cuts]
        for side in (0, 1):
            assert torch.allclose(sum(part[side] for part in sliced), keys[side], atol=1e-13)
        projected = layer.keys_of_projected(layer.project(h))
        assert all(torch.allclose(a, b, atol=1e-13) for a, b in zip(projected, keys, strict=True))


def test_identity_residual_is_a_zero_padded_slice():
    layer = make_model("sage", hidden=13, residual=True).layers[0]
    h = GRAPH.features.double()
    cuts = [slice(0, 4), slice(4, 13)]
    assert torch.equal(sum(layer.residual_part(h[:, dims], dims) for dims in cuts), h)


def test_the_short_way_equals_the_phases_with_every_gradient(monkeypatch):
    monkeypatch.setattr(local, "aggregates_first", lambda *_: True)
    layer = make_model("sage", norm=True).layers[0]
    block = sampled_block(make_model("sage"))
    assert layer.traits.mixed_and_biased is not None
    found = []
    for shape in (local.preactivated_rows, lambda *args: layer.preactivation(mixed_rows(*args))):
        h = inputs(block).requires_grad_()
        out = shape(layer, block, h, None)
        grads = torch.autograd.grad(out.square().sum(), [h, *layer.parameters()])
        found.append([out, *grads])
    for short, phased in zip(*found, strict=True):
        assert torch.allclose(short, phased, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sampled", [True, False])
def test_project_first_equals_aggregate_first(name, sampled, monkeypatch):
    model = make_model(name)
    layer = model.layers[0]
    block = sampled_block(model) if sampled else full_batch(model).blocks[0]
    h = inputs(block)
    outs = []
    for first in (True, False):
        monkeypatch.setattr(local, "aggregates_first", lambda *_, first=first: first)
        outs.append(mixed_rows(layer, block, h, None))
    assert torch.allclose(*outs, atol=1e-12)


def test_attention_by_phases_equals_the_fused_kernel_dropout_included():
    model = make_model("gat")
    layer = model.layers[0]
    block = sampled_block(model)
    h = inputs(block)
    drop = model.drop(model_purpose(), 0, layer.traits.weight_dropout, KEY)
    fused = mixed_rows(layer, block, h, drop)
    x = layer.project(h)
    src_key, dst_key = layer.keys(h)
    weight, mass = edge_weights(layer, block, (src_key, destination_rows(block, dst_key)))
    aggregated = layer.aggregate_projected(block, x, layer.drop_weights(block, weight, drop))
    by_phases = layer.mix(local.Destinations(block.dst_ids, block.degree, mass), aggregated, None)
    assert torch.allclose(fused, by_phases, atol=1e-12)
    assert not torch.allclose(fused, mixed_rows(layer, block, h, None), atol=1e-3)


def model_purpose():
    from gnnexp.kernels.counter import Purpose

    return Purpose.ATTENTION_DROPOUT


@pytest.mark.parametrize("kernel", ["torch", "dgl"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_gives_the_same_model(name, kernel):
    outs, gradients = [], []
    for chosen in ("numba", kernel):
        model = make_model(name, kernel=chosen, dropout=0.5, input_dropout=0.3)
        batch = full_batch(model)
        model.train()
        out = model(batch, inputs(batch.blocks[0]))
        out.square().sum().backward()
        outs.append(out)
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert (outs[0] - outs[1]).abs().max() < 1e-12 * max(1.0, float(outs[0].abs().max()))
    for a, b in zip(*gradients, strict=True):
        assert (a - b).abs().max() < 1e-12 * max(1.0, float(a.abs().max()))


def test_fused_relu_and_dropout_equal_their_parts():
    plain = make_model("sage", dropout=0.5)
    batch = full_batch(plain)
    plain.train()
    fused = plain(batch, inputs(batch.blocks[0]))
    plain._fuses = (False,) * plain.num_layers  # the same masks, ReLU in `finish`, dropout afterwards
    assert torch.allclose(plain(batch, inputs(batch.blocks[0])), fused, atol=1e-13)


def test_gcn_on_samples_is_an_unbiased_estimate():
    model = make_model("gcn", layers=1)
    layer = model.layers[0]
    exact = mixed_rows(layer, full_batch(model).blocks[0], GRAPH.features.double(), None)
    sampler = FusedOptions(fanouts=[2]).make()
    sampler.setup(Shard(GRAPH, needs=model.options.needs), 1)
    ids = torch.arange(GRAPH.num_nodes, dtype=torch.int32)
    total = torch.zeros_like(exact)
    for step in range(4000):
        block = sampler.sample(ids, BatchKey(0, 0, step), 0).blocks[0]
        total += mixed_rows(layer, block, GRAPH.features[block.src_ids.long()].double(), None)
    scale = exact.abs().max()
    assert float((total / 4000 - exact).abs().max() / scale) < 0.1


def test_isolated_vertices_get_their_own_part_only():
    model = make_model("sage")
    batch = full_batch(model)
    layer = model.layers[0]
    mixed = mixed_rows(layer, batch.blocks[0], GRAPH.features.double(), None)
    assert torch.allclose(mixed[:2], layer.project_self(GRAPH.features[:2].double()), atol=1e-14)


def test_layers_agree_on_destinations_that_are_not_the_first_sources():
    model = make_model("sage")
    block = full_batch(model).blocks[0]
    moved = replace(block, dst_positions=torch.arange(GRAPH.num_nodes))
    h = GRAPH.features.double()
    assert torch.equal(mixed_rows(model.layers[0], block, h, None), mixed_rows(model.layers[0], moved, h, None))


@pytest.mark.parametrize(
    ("name", "options", "constant"),
    [
        ("gcn", {}, True),
        ("gcn", {"self_loops": False}, True),
        ("gcn", {"degrees": "block"}, True),
        ("gin", {"train_eps": False}, True),
        ("gin", {}, False),
        ("sage", {}, False),
        ("gat", {}, False),
    ],
)
def test_the_transpose_of_a_constant_mix_needs_no_rows(name, options, constant):
    model = make_model(name, **options)
    block, layer = full_batch(model).blocks[0], model.stack[0]
    assert has_constant_mix(layer, block) == constant
    if constant:
        generator = torch.Generator().manual_seed(2)
        sums, own, gradient = torch.randn(3, block.num_dst, 7, generator=generator, dtype=torch.float64).unbind()
        mixed = mixed_sums(layer, block, sums.requires_grad_(), own.requires_grad_())
        parts = torch.autograd.grad(mixed, (sums, own), gradient, allow_unused=True)
        found = constant_mix_back(layer, block, gradient)
        assert torch.equal(found[0], parts[0])
        assert (found[1] is None) == (parts[1] is None) == (not layer.traits.self_is_neighbour)
        assert found[1] is None or torch.equal(found[1], parts[1])
