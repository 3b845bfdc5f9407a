"""Layers of PyTorch Geometric that compute the same as layers of gnnexp, and their parameters.

The formulas are equal on every graph, with parallel edges and self loops. Where PyG treats self loops or degrees
differently, the exported code prepares the edges (`gnnexp.api.pyg_module`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from gnnexp.models.gat import GATLayer, GATOptions
from gnnexp.models.gcn import GCNLayer, GCNOptions
from gnnexp.models.gin import GINLayer, GINOptions
from gnnexp.models.model import Model
from gnnexp.models.pyg import PyGLayer, PyGOptions
from gnnexp.models.rgcn import BasisLayer, BlockDiagonalLayer, RGCNOptions
from gnnexp.models.sage import SAGELayer, SAGEOptions
from gnnexp.models.sage_pool import SAGEPoolLayer, SAGEPoolOptions

# What the layers of a model take after the features.
Edges = Literal["plain", "loops", "types", "normalised", "weights"]
WITH_TWINS = (
    "sage (SAGEConv, aggr=mean), gcn (GCNConv), gat (GATConv), gin (GINConv), rgcn with norm_by=relation "
    "(RGCNConv), sage_pool (SAGEConv, aggr=max), pyg (its own module)"
)
_MODELS = (SAGEOptions, GCNOptions, GATOptions, GINOptions, RGCNOptions, SAGEPoolOptions, PyGOptions)


@dataclass(frozen=True, eq=False)
class Twin:
    """A layer of PyG.

    Attributes:
        module: module of its class.
        code: expression that makes it; its class comes first.
        values: its parameters and buffers, by name.
    """

    module: str
    code: str
    values: Mapping[str, Tensor]


def edge_use_of(model: Model, *, weighted: bool) -> Edges:
    """What the layers of a model take after the features, for graphs with or without edge weights."""
    options = model.options
    if isinstance(options, GCNOptions):
        return "weights" if weighted else "normalised"
    if isinstance(options, RGCNOptions):
        return "types"
    return "loops" if isinstance(options, GATOptions) and options.self_loops else "plain"


def why_none(model: Model, *, weighted: bool) -> str | None:
    """Why a model has no twin, or None if it has one."""
    options = model.options
    if type(options) not in _MODELS or model.sees_rows:
        return "has layers without a twin"
    if weighted and not isinstance(options, GCNOptions):
        return "multiplies messages with edge weights, and the layer of PyG does not"
    if isinstance(options, GCNOptions) and options.degrees == "block":
        return "normalises by the degrees of blocks (model.degrees=block)"
    if not isinstance(options, RGCNOptions):
        return None
    if options.norm_by == "vertex":
        return "divides by all in-edges (model.norm_by=vertex), and RGCNConv by those of a relation"
    uneven = [width for width in model.widths if options.decomposition == "block" and width % options.blocks]
    return (
        f"has blocks of different sizes: model.blocks={options.blocks} does not divide {uneven[0]}" if uneven else None
    )


def twin_of(layer: nn.Module, *, weighted: bool) -> Twin:
    """The twin of a layer of a model for which `why_none` finds no reason."""
    match layer:
        case SAGELayer():
            return _pyg(
                f"SAGEConv({layer.in_dim}, {layer.out_dim}, bias={_has(layer.bias)})",
                {"lin_l.weight": layer.weight, "lin_l.bias": layer.bias, "lin_r.weight": layer.self_weight},
            )
        case GCNLayer():
            normalised = f"add_self_loops={bool(layer.extra)}" if weighted else "normalize=False"
            return _pyg(
                f"GCNConv({layer.in_dim}, {layer.out_dim}, {normalised}, bias={_has(layer.bias)})",
                {"lin.weight": layer.weight, "bias": layer.bias},
            )
        case GATLayer():
            return _pyg(
                f"GATConv({layer.in_dim}, {layer.head_dim}, heads={layer.num_weights}, concat={layer.concat}, "
                f"negative_slope={layer.slope}, dropout={layer.traits.weight_dropout}, add_self_loops=False, "
                f"bias={_has(layer.bias)})",
                {
                    "lin.weight": layer.weight,
                    "att_src": layer.src_attention.unsqueeze(0),
                    "att_dst": layer.dst_attention.unsqueeze(0),
                    "bias": layer.bias,
                },
            )
        case GINLayer():
            inner = (
                f"nn.Sequential(nn.Linear({layer.in_dim}, {layer.width}), nn.ReLU(), "
                f"nn.Linear({layer.width}, {layer.out_dim}, bias={_has(layer.bias)}))"
            )
            return _pyg(
                f"GINConv({inner}, train_eps={layer.eps.requires_grad})",
                {
                    "nn.0.weight": layer.weight,
                    "nn.0.bias": layer.inner_bias,
                    "nn.2.weight": layer.outer,
                    "nn.2.bias": layer.bias,
                    "eps": layer.eps,
                },
            )
        case SAGEPoolLayer():
            return _pyg(
                f'SAGEConv({layer.in_dim}, {layer.out_dim}, aggr="max", project=True)',
                {
                    "lin.weight": layer.pool.weight,
                    "lin.bias": layer.pool.bias,
                    "lin_l.weight": layer.neighbour.weight,
                    "lin_l.bias": layer.own.bias,
                    "lin_r.weight": layer.own.weight,
                },
            )
        case BasisLayer() | BlockDiagonalLayer():
            return _relational(layer)
        case _:
            raise AssertionError(f"no twin of {type(layer).__name__}")


def _relational(layer: BasisLayer | BlockDiagonalLayer) -> Twin:
    if isinstance(layer, BasisLayer):
        relations, kind = layer.coefficients.shape[0], f"num_bases={layer.num_weights}"
        values = {
            "weight": layer.weight.view(layer.num_weights, layer.out_dim, layer.in_dim).transpose(1, 2),
            "comp": layer.coefficients,
        }
    else:
        relations, kind = layer.weight.shape[0], f"num_blocks={layer.blocks}"
        values = {"weight": layer.weight}
    return _pyg(
        f"RGCNConv({layer.in_dim}, {layer.out_dim}, {relations}, {kind}, bias={_has(layer.bias)})",
        {**values, "root": layer.self_weight.T, "bias": layer.bias},
    )


def own_module(model: PyGOptions, layer: PyGLayer) -> Twin:
    """The module of a layer of `model=pyg`, as it is."""
    place, _, name = model.module.rpartition(".")
    options = "".join(f", {key}={value!r}" for key, value in (model.options or {}).items())
    return Twin(place, f"{name}({layer.in_dim}, {layer.out_dim}{options})", layer.module.state_dict())


def _pyg(code: str, values: Mapping[str, Tensor | None]) -> Twin:
    return Twin(
        "torch_geometric.nn", code, {name: value.detach() for name, value in values.items() if value is not None}
    )


def _has(bias: Tensor | None) -> bool:
    return bias is not None
