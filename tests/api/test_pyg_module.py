"""The exported model, made by torch_geometric from the exported code, has the same logits as the model of gnnexp."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from untrained import untrained

from gnnexp.api.pyg_module import exported
from gnnexp.api.trained import TrainedModel
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph, typed_graph, weighted_graph

pytest.importorskip("torch_geometric")

SMALL = ("model.hidden=12", "model.layers=3")
ENDS = ("model.residual=true", "model.norm=true")
CASES: dict[str, tuple[Callable[[], Graph], tuple[str, ...]]] = {
    "sage": (nasty_graph, ("model=sage",)),
    "sage with ends": (nasty_graph, ("model=sage", *ENDS)),
    "sage without bias": (nasty_graph, ("model=sage", "model.bias=false")),
    "one layer": (nasty_graph, ("model=sage", "model.layers=1", *ENDS)),
    "gcn": (nasty_graph, ("model=gcn",)),
    "gcn without loops": (nasty_graph, ("model=gcn", "model.self_loops=false", *ENDS)),
    "gcn with weights": (weighted_graph, ("model=gcn",)),
    "gcn with weights, without loops": (weighted_graph, ("model=gcn", "model.self_loops=false")),
    "gat": (nasty_graph, ("model=gat", "model.heads=3", "model.out_heads=2")),
    "gat with ends": (
        nasty_graph,
        (
            "model=gat",
            "model.heads=2",
            "model.attention_dropout=0.5",
            "model.slope=0.1",
            "model.self_loops=false",
            *ENDS,
        ),
    ),
    "gin": (nasty_graph, ("model=gin",)),
    "gin with ends": (nasty_graph, ("model=gin", "model.train_eps=false", "model.bias=false", *ENDS)),
    "rgcn": (typed_graph, ("model=rgcn", "model.bases=3", *ENDS)),
    "rgcn with blocks": (
        lambda: nasty_graph(num_features=8, typed=True),
        ("model=rgcn", "model.decomposition=block", "model.blocks=4"),
    ),
    "sage_pool": (nasty_graph, ("model=sage_pool",)),
    "pyg": (nasty_graph, ("model=pyg",)),
    "pyg without options": (nasty_graph, ("model=pyg", "model.module=torch_geometric.nn.SAGEConv", "~model.options")),
}


def logits_of(model: TrainedModel, folder: Path) -> torch.Tensor:
    """By the exported files alone, and by torch_geometric."""
    found = exported(model, "twin")
    (folder / "twin.py").write_text(found.code)
    torch.save(found.values, folder / "twin.pt")
    spec = importlib.util.spec_from_file_location("twin", folder / "twin.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph, made = model.graph, module.load()
    assert isinstance(graph.features, torch.Tensor)
    more = [values for values in (graph.edge_types, graph.edge_weights) if values is not None]
    edges = torch.stack((graph.indices, graph.destinations())).long()
    with torch.no_grad():
        dtype = next(made.parameters()).dtype
        logits: torch.Tensor = made(
            graph.features.to(dtype), edges, *(one.to(dtype) if one.is_floating_point() else one.long() for one in more)
        )
    return logits


# In float32 the exported code is the same, and the bound is wider.
IN_FLOAT32 = ("gat with ends",)
# All that they have is in another case.
IN_OTHERS = ("sage", "gcn with weights, without loops")


@pytest.mark.parametrize(
    ("dtype", "bound", "case"),
    [
        *(pytest.param("float64", 1e-12, case, marks=pytest.mark.slow if case in IN_OTHERS else ()) for case in CASES),
        *(pytest.param("float32", 1e-5, case, marks=() if case in IN_FLOAT32 else pytest.mark.slow) for case in CASES),
    ],
)
def test_pyg_gives_the_same_logits(case: str, dtype: str, bound: float, tmp_path: Path) -> None:
    make, overrides = CASES[case]
    model = untrained(make(), tmp_path, *SMALL, *overrides, f"train.dtype={dtype}")
    expected, found = model(), logits_of(model, tmp_path)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert float((found - expected).abs().max()) <= bound * float(expected.abs().max().clamp(min=1))


def test_the_code_names_the_model_and_the_graph(tmp_path: Path) -> None:
    found = exported(untrained(nasty_graph(), tmp_path, *SMALL, "model=gcn"), "twin")
    assert '"""GCN of nasty: columns ' in found.code


REFUSED: dict[str, tuple[Callable[[], Graph], tuple[str, ...], str]] = {
    "mlp": (nasty_graph, ("model=mlp",), "has layers without a twin(.|\n)*sage .*gcn .*gat"),
    "sage with weights": (weighted_graph, ("model=sage",), "multiplies messages with edge weights"),
    "gin with weights": (weighted_graph, ("model=gin",), "multiplies messages with edge weights"),
    "gat with weights": (weighted_graph, ("model=gat",), "multiplies messages with edge weights"),
    "degrees of blocks": (nasty_graph, ("model=gcn", "model.degrees=block"), "degrees of blocks"),
    "norm by vertex": (typed_graph, ("model=rgcn", "model.norm_by=vertex"), "divides by all in-edges"),
    "uneven blocks": (
        typed_graph,
        ("model=rgcn", "model.decomposition=block", "model.blocks=4"),
        "blocks of different sizes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_without_a_twin_are_refused(case: str, tmp_path: Path) -> None:
    make, overrides, text = REFUSED[case]
    with pytest.raises(ConfigError, match=text):
        exported(untrained(make(), tmp_path, *SMALL, *overrides))
