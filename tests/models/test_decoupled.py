"""Decoupled twins against dense matrices: no kernel, no block and no layer of gnnexp on the other side."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments import assembled
from full_graph import full_config
from torch import Tensor
from torch.nn import functional as F

from gnnexp.comm.environment import Environment
from gnnexp.experiment.build import build
from gnnexp.graph.shard import BlockNeeds
from gnnexp.models.decoupled import DecoupledModel
from gnnexp.models.layer import Degrees
from gnnexp.models.model import Model, ModelOptions
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import edge_list, typed_graph
from gnnexp.testing.ways import TENSOR
from gnnexp.training.assemble import Artifacts

GRAPH = typed_graph()
FEATURES = GRAPH.features.double()
Named = dict[str, Tensor]
CASES: dict[str, dict[str, Any]] = {
    "gcn": {"layers": 3},
    "gcn_without_loops": {"layers": 2, "self_loops": False},
    "sage": {"layers": 3},
    "sage_residual": {"layers": 3, "residual": True, "norm": True},
    "gin": {"layers": 2},
    "gat": {"layers": 2, "heads": 2},
    "gat_heads": {"layers": 3, "heads": 4, "out_heads": 3},
    "gat_without_loops": {"layers": 2, "heads": 2, "self_loops": False},
    "rgcn": {"layers": 3, "bases": 2},
    "rgcn_by_vertex": {"layers": 2, "bases": 1, "norm_by": "vertex"},
}


def kind(case: str) -> str:
    return case.partition("_")[0]


def options(case: str) -> dict[str, Any]:
    targets = {"gcn": "gcn.GCN", "sage": "sage.SAGE", "gin": "gin.GIN", "gat": "gat.GAT", "rgcn": "rgcn.RGCN"}
    more = {"attention_dropout": 0.0} if kind(case) == "gat" else {}
    return {
        "_target_": f"gnnexp.models.{targets[kind(case)]}",
        "hidden": 12,
        "dropout": 0.0,
        "input_dropout": 0.0,
        **more,
        **CASES[case],
    }


# --- the other side --------------------------------------------------------------------------------------------------
def adjacency() -> Tensor:
    """`[V, V]`: how many edges lead to the row's vertex from the column's."""
    matrix = torch.zeros(GRAPH.num_nodes, GRAPH.num_nodes, dtype=torch.float64)
    for source, destination in edge_list(GRAPH):
        matrix[destination, source] += 1
    return matrix


def heads_of(case: str, index: int) -> int:
    last = index == CASES[case]["layers"] - 1
    return CASES[case].get("out_heads", 1) if last else CASES[case]["heads"]


def dense_rows(case: str, p: Named) -> tuple[Tensor, Tensor | None]:
    """`(MLPOptions(X).make(), projected rows of the last layer [V, K, F])`."""
    h, layers, projected = FEATURES, CASES[case]["layers"], None
    for index in range(layers):
        name, last = f"layers.{index}.", index == layers - 1
        z = h @ p[name + "weight"].T
        if kind(case) == "sage":
            z = z + h @ p[name + "self_weight"].T
        if kind(case) == "rgcn":
            z = z.view(len(z), CASES[case]["bases"], -1).sum(1) + h @ p[name + "self_weight"].T
        if kind(case) == "gin":
            z = torch.relu(z + p[name + "inner_bias"]) @ p[name + "outer"].T
        if kind(case) == "gat":
            projected = z.view(len(z), heads_of(case, index), -1)
            z = projected.mean(1) if last else z
        z = z + p[name + "bias"]
        if not last and CASES[case].get("norm"):
            z = F.layer_norm(z, z.shape[1:], p[name + "norm.weight"], p[name + "norm.bias"])
        if not last:
            z = F.elu(z) if kind(case) == "gat" else torch.relu(z)
            if CASES[case].get("residual"):
                z = z + (h @ p[name + "residual_weight"].T if name + "residual_weight" in p else h)
        h = z
    return h, projected


def attention(case: str, p: Named, projected: Tensor) -> Tensor:
    """`[V, V]` mean over heads of each row's softmax over its edges, parallel ones and its loop among them."""
    name = f"layers.{CASES[case]['layers'] - 1}."
    source, destination = (torch.einsum("vkf,kf->kv", projected, p[f"{name}{end}_attention"]) for end in ("src", "dst"))
    loops = torch.eye(GRAPH.num_nodes, dtype=torch.float64) * CASES[case].get("self_loops", True)
    weight = torch.exp(F.leaky_relu(destination[:, :, None] + source[:, None, :], 0.2)) * (adjacency() + loops)
    return (weight / weight.sum(2, keepdim=True).clamp(min=1e-300)).mean(0)


def relation_weights(case: str, p: Named) -> Tensor:
    """`[V, V]` of the last layer: each edge's coefficient, averaged over bases, over the edges that it counts with."""
    assert GRAPH.edge_types is not None
    mean = p[f"layers.{CASES[case]['layers'] - 1}.coefficients"].mean(1)
    edges = [(*pair, kind) for pair, kind in zip(edge_list(GRAPH), GRAPH.edge_types.tolist(), strict=True)]
    by_vertex = CASES[case].get("norm_by") == "vertex"
    alike = Counter(destination if by_vertex else (destination, kind) for _, destination, kind in edges)
    matrix = torch.zeros(GRAPH.num_nodes, GRAPH.num_nodes, dtype=torch.float64)
    for source, destination, kind in edges:
        share = mean[kind] / alike[destination if by_vertex else (destination, kind)]
        matrix = matrix.index_put((torch.tensor(destination), torch.tensor(source)), share, accumulate=True)
    return matrix


def propagation(case: str, p: Named, projected: Tensor | None) -> Tensor:
    """`[V, V]` of one step."""
    edges, eye = adjacency(), torch.eye(GRAPH.num_nodes, dtype=torch.float64)
    if kind(case) == "gat":
        assert projected is not None
        return attention(case, p, projected)
    if kind(case) == "gcn":
        looped = edges + eye * CASES[case].get("self_loops", True)
        roots = [looped.sum(dim).clamp(min=1).rsqrt() for dim in (1, 0)]
        return roots[0][:, None] * looped * roots[1]
    if kind(case) == "rgcn":
        return eye + relation_weights(case, p)
    if kind(case) == "sage":
        return eye + edges / edges.sum(1, keepdim=True).clamp(min=1)
    return edges + eye * (1 + p[f"layers.{CASES[case]['layers'] - 1}.eps"])


def dense_twin(case: str, p: Named, *, frozen: bool = False) -> Tensor:
    x, projected = dense_rows(case, p)
    step = propagation(case, p, projected)
    if frozen:
        step = step.detach()
    for _ in range(CASES[case]["layers"]):
        x = step @ x
    return x


def perturb(model: Model) -> Named:
    """Parameters of which none is zero, and leaves of the same values."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


def assert_gradients(model: Model, p: Named) -> None:
    """Those of the model, which has run backward, are those of `p`, which has too."""
    for name, parameter in model.named_parameters():
        if p[name].grad is None:
            assert parameter.grad is None or not parameter.grad.any(), name
            continue
        assert parameter.grad is not None, name
        scale = p[name].grad.abs().max().clamp(min=1e-3)
        assert (parameter.grad - p[name].grad).abs().max() <= 1e-10 * scale, name


# --- the twin --------------------------------------------------------------------------------------------------------
def made(case: str, kernel: str) -> Model:
    model = build({**options(case), "kernel": kernel}, ModelOptions).make()
    model.setup(
        GRAPH.num_features,
        GRAPH.num_classes,
        Degrees.of(GRAPH),
        seed=0,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )
    return model


def run_in_parts(twin: DecoupledModel, needs: BlockNeeds, parts: list[Tensor]) -> Tensor:
    """Layer by layer over destinations in parts, as inference does; rows of all vertices in order of id."""
    expansion, h = Expansion(GRAPH, needs, (-1,)), FEATURES
    blocks = [expansion.blocks(part, (0,))[0] for part in parts]
    order = torch.argsort(torch.cat(parts))
    for index in range(twin.num_layers):
        h = torch.cat([twin.run_layer(index, block, h[block.src_ids.long()], None) for block in blocks])[order]
    return h


@pytest.mark.parametrize("kernel", ["numba", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_the_twin_equals_dense_matrices_with_every_gradient(case, kernel):
    model = made(case, kernel)
    p, twin = perturb(model), DecoupledModel(model)
    everyone = torch.arange(GRAPH.num_nodes)
    parts = [[everyone], [everyone[1::3], everyone[2::3], everyone[0::3]]]
    weights = torch.randn(GRAPH.num_nodes, GRAPH.num_classes, generator=torch.Generator().manual_seed(1)).double()
    expected = dense_twin(case, p)
    (expected * weights).sum().backward()
    for cut in parts:
        found = run_in_parts(twin, model.options.needs, cut)
        assert (found - expected).abs().max() <= 1e-11 * expected.abs().max()
        model.zero_grad()
        (found * weights).sum().backward()
        assert_gradients(model, p)


@pytest.mark.parametrize(
    ("case", "chunks", "frozen"),
    [
        ("gcn", 1, False),
        ("sage", 3, False),
        ("gin", 3, False),
        ("rgcn", 1, False),
        ("rgcn", 3, False),
        ("rgcn_by_vertex", 3, False),
        ("gat", 1, False),
        ("gat", 1, True),
        ("gat_heads", 4, False),
        ("gat_heads", 4, True),
    ],
)
def test_training_by_columns_has_the_loss_and_gradients_of_dense_matrices(case, chunks, frozen):
    """The paradigm on one rank; frozen attention is computed, and has no gradient."""
    mode = {"_target_": TENSOR, "mode": "decoupled", "chunks": chunks, "attention": "frozen" if frozen else "trained"}
    config = {**full_config("gcn", mode), "model": options(case)}
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(GRAPH), Path(folder), Environment())
        p = perturb(job.model)
        (batch,) = trainer.batches(0)
        loss, count = trainer.forward_backward(batch)
    train, labels = GRAPH.splits.train.long(), GRAPH.labels
    expected = F.cross_entropy(dense_twin(case, p, frozen=frozen)[train], labels[train], reduction="sum")
    (expected / count).backward()
    assert count == train.numel() and loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert_gradients(job.model, p)
    if kind(case) == "gat":
        vectors = [p.grad for name, p in job.model.named_parameters() if "_attention" in name]
        assert all(grad is None or not grad.any() for grad in vectors) == frozen


def test_no_twin_takes_a_gradient_for_attention_or_eps_of_hidden_layers():
    for case, word in (("gat", "attention"), ("gin", "eps"), ("rgcn_by_vertex", "coefficients")):
        model = made(case, "numba")
        twin = DecoupledModel(model)
        run_in_parts(twin, model.options.needs, [torch.arange(GRAPH.num_nodes)]).sum().backward()
        hidden, last = (
            [p.grad for name, p in model.named_parameters() if word in name and f"layers.{at}" in name] for at in (0, 1)
        )
        assert hidden and all(grad is None for grad in hidden)
        assert last and all(grad is not None and grad.any() for grad in last)
