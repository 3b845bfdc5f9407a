"""The code of a model for PyTorch Geometric, with a state_dict that gives the same logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.api.pyg_twins import WITH_TWINS, Edges, Twin, edge_use_of, own_module, twin_of, why_none
from gnnexp.api.trained import TrainedModel
from gnnexp.errors import ConfigError, Problem
from gnnexp.models.decoupled import DecoupledModel
from gnnexp.models.gcn import GCNOptions
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import Model
from gnnexp.models.pyg import PyGLayer, PyGOptions

MARK = '"""A model that gnnexp trained, for PyTorch Geometric.'
_TEMPLATE = (
    MARK
    + '''

    from {stem} import load
    model = load()
    outputs = model(x, {call})  # [V, {outputs}]

`x` `[V, {inputs}]` are the features, and `edge_index` `[2, E]` has a column (source, destination) for each edge, as
gnnexp prepared them: for an undirected graph both directions, without the self loops that layers add.
{conventions}
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
{imports}


class Model(nn.Module):
    """{title}"""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([
            {convs},
        ]){more}

    def forward(self, x: Tensor, {arguments}) -> Tensor:
        {prepare}
        last = len(self.convs) - 1
        for number, conv in enumerate(self.convs):
            h = conv(F.dropout(x, {dropout} if number else {input_dropout}, self.training), *edges)
            {end}
        return x


def load(path: Path = Path(__file__).with_suffix(".pt")) -> Model:
    """The trained model."""
    values = torch.load(path, weights_only=True)
    model = Model().to(next(iter(values.values())).dtype)
    model.load_state_dict(values)
    return model.eval()
{functions}'''
)
_LOOPS = '''

def with_loops(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The edges and, after them, a self loop of every vertex. Self loops that are there already stay."""
    return torch.cat((edge_index, torch.arange(num_nodes, device=edge_index.device).expand(2, -1)), 1)
'''
_NORMALISED = '''

def normalised(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Edges, and their weights 1 / sqrt(out-degree of the source * in-degree of the destination)."""
    {loops}source, destination = edge_index
    out_degree, in_degree = (torch.bincount(ends, minlength=num_nodes).to(dtype) for ends in edge_index)
    return edge_index, (out_degree[source] * in_degree[destination]).rsqrt()
'''
# Arguments of `forward` after x, the statement that prepares them, and what a user must know.
_EDGES: dict[Edges, tuple[tuple[str, ...], str, str]] = {
    "plain": (("edge_index",), "edges = (edge_index,)", ""),
    "loops": (
        ("edge_index",),
        "edges = (with_loops(edge_index, x.shape[0]),)",
        "Every vertex also attends to itself. On a graph without self loops, this is what\n"
        "GATConv(add_self_loops=True) does.",
    ),
    "types": (
        ("edge_index", "edge_type"),
        "edges = (edge_index, edge_type)",
        "`edge_type` `[E]` is the relation of each edge.",
    ),
    "normalised": (
        ("edge_index",),
        "edges = normalised(edge_index, x.shape[0], x.dtype)",
        "On an undirected graph without self loops, this is what GCNConv(normalize=True) does. On other\n"
        "graphs PyG takes in-degrees of both ends, and gnnexp the out-degree of the source.",
    ),
    "weights": (
        ("edge_index", "edge_weight"),
        "edges = (edge_index, edge_weight)",
        "`edge_weight` `[E]` is the weight of each edge. GCNConv normalises them as gnnexp does.",
    ),
}


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A model for PyTorch Geometric.

    Attributes:
        code: a Python module with the class `Model` and the function `load`.
        values: the state_dict of `Model`.
    """

    code: str
    values: dict[str, Tensor]


def exported(trained: TrainedModel, stem: str = "model") -> ExportedModel:
    """The model of a run for PyTorch Geometric.

    For a task of links, this is the model whose outputs the decoder scores. The decoder is not part of it.

    Args:
        trained: the model of a run.
        stem: name of the module, which its text shows.

    Raises:
        ConfigError: a layer has no twin in PyTorch Geometric.
    """
    model, weighted = trained.model, trained.graph.edge_weights is not None
    ConfigError.raise_all(_problems(trained, model, weighted))
    twins = [
        own_module(model.options, layer)
        if isinstance(model.options, PyGOptions) and isinstance(layer, PyGLayer)
        else twin_of(layer, weighted=weighted)
        for layer in model.layers
    ]
    values = {
        f"convs.{number}.{name}": value for number, twin in enumerate(twins) for name, value in twin.values.items()
    }
    for number, layer in enumerate(model.layers):
        if isinstance(layer, Layer) and layer.norm is not None:
            values |= {f"norms.{number}.{name}": value for name, value in layer.norm.state_dict().items()}
        if isinstance(layer, Layer) and layer.residual_weight is not None:
            values[f"skips.{number}.weight"] = layer.residual_weight.detach()
    return ExportedModel(
        _code(trained, model, twins, stem, weighted=weighted),
        {name: value.cpu().clone(memory_format=torch.contiguous_format) for name, value in values.items()},
    )


def _problems(trained: TrainedModel, model: Model, weighted: bool) -> list[Problem]:
    fix, name = f"models with twins are {WITH_TWINS}", _name_of(model)
    if isinstance(model, DecoupledModel):
        return [
            Problem(
                "model",
                name,
                "the run trained a decoupled model, which first updates rows, and then propagates them",
                "train with another paradigm",
            )
        ]
    if trained.has_own_rows:
        return [
            Problem(
                "feature_store",
                "embedding",
                "trained rows replace features, and PyG's layers take features",
                "train with features and feature_store=local",
            )
        ]
    why = why_none(model, weighted=weighted)
    return [] if why is None else [Problem("model", name, why, fix)]


def _name_of(model: Model) -> str:
    """`GCN` for a model that `GCNOptions` made."""
    return type(model.options).__name__.removesuffix("Options")


def _code(trained: TrainedModel, model: Model, twins: list[Twin], stem: str, *, weighted: bool) -> str:
    edges = edge_use_of(model, weighted=weighted)
    arguments, prepare, conventions = _EDGES[edges]
    layers = model.stack
    activation = layers[0].activation if len(layers) > 1 else "none"
    imports = sorted({f"from {twin.module} import {twin.code.partition('(')[0]}" for twin in twins})
    loops = "edge_index = with_loops(edge_index, num_nodes)\n    "
    is_gcn_with_loops = isinstance(model.options, GCNOptions) and model.options.self_loops
    functions = _LOOPS if edges == "loops" or (edges == "normalised" and is_gcn_with_loops) else ""
    if edges == "normalised":
        functions += _NORMALISED.replace("{loops}", loops if functions else "")
    widths = " -> ".join(map(str, model.widths))
    return _TEMPLATE.format(
        stem=stem,
        call=", ".join(arguments),
        inputs=model.in_dim,
        outputs=model.num_classes,
        conventions=conventions,
        imports="\n".join(imports),
        title=f"{_name_of(model)} of {trained.graph.name}: columns {widths}.",
        convs=",\n            ".join(twin.code for twin in twins),
        more=_more(layers),
        prepare=prepare,
        arguments=", ".join(f"{name}: Tensor" for name in arguments),
        dropout=model.dropout,
        input_dropout=model.input_dropout,
        end=_end(layers, activation),
        functions=functions,
    )


def _more(layers: Sequence[Layer | BlockLayer]) -> str:
    """Code of normalisation and skip connections, which hidden layers may have."""
    hidden = [layer for layer in layers[:-1] if isinstance(layer, Layer)]
    norms = [f"nn.LayerNorm({layer.out_dim})" for layer in hidden if layer.norm is not None]
    skips = [
        "nn.Identity()" if layer.residual_weight is None else f"nn.Linear({layer.in_dim}, {layer.out_dim}, bias=False)"
        for layer in hidden
        if layer.residual
    ]
    return "".join(
        f"\n        self.{name} = nn.ModuleList([{', '.join(parts)}])"
        for name, parts in (("norms", norms), ("skips", skips))
        if parts
    )


def _end(layers: Sequence[Layer | BlockLayer], activation: str) -> str:
    """Code of what comes after the convolution: of hidden layers only."""
    first = layers[0]
    normalised = isinstance(first, Layer) and first.norm is not None and len(layers) > 1
    found = "self.norms[number](h)" if normalised else "h"
    found = found if activation == "none" else f"F.{activation}({found})"
    skip = " + self.skips[number](x)" if first.residual and len(layers) > 1 else ""
    return f"x = h if number == last else {found}{skip}"
