"""gnnexp's models with DGL's convolutions: the layers of the DGL reference."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.components.locate import choice_of
from gnnexp.errors import Refusal
from gnnexp.models.gat import GATLayer, GATOptions
from gnnexp.models.gcn import GCNLayer, GCNOptions
from gnnexp.models.gin import GINLayer, GINOptions
from gnnexp.models.layer import activate
from gnnexp.models.model import Model, ModelOptions
from gnnexp.models.sage import SAGELayer, SAGEOptions

os.environ.setdefault("DGLBACKEND", "pytorch")  # read by dgl when it is imported
from dgl.nn import pytorch as conv

# (parameter of gnnexp's layer, its name in DGL's convolution, whether DGL stores it transposed)
_SAME: dict[type[nn.Module], list[tuple[str, str, bool]]] = {
    SAGELayer: [
        ("weight", "fc_neigh.weight", False),
        ("self_weight", "fc_self.weight", False),
        ("bias", "fc_self.bias", False),
    ],
    GCNLayer: [("weight", "weight", True), ("bias", "bias", False)],
    GATLayer: [
        ("weight", "fc.weight", False),
        ("src_attention", "attn_l", False),
        ("dst_attention", "attn_r", False),
        ("bias", "bias", False),
    ],
    GINLayer: [
        ("weight", "apply_func.0.weight", False),
        ("inner_bias", "apply_func.0.bias", False),
        ("outer", "apply_func.2.weight", False),
        ("bias", "apply_func.2.bias", False),
        ("eps", "eps", False),
    ],
}


class DGLStack(nn.Module):
    """The model as a DGL user writes it: convolutions, ReLU (or ELU), `F.dropout`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_conv(layer) for layer in model.layers)
        self.activation = model.stack[0].activation
        self.dropout, self.input_dropout = model.dropout, model.input_dropout
        self.load_from(model)

    @property
    def layers(self) -> nn.ModuleList:
        """The convolutions, under the name that models have."""
        return self.convs

    def forward(self, graphs: list[Any], h: Tensor) -> Tensor:
        """`[T, classes]` from input rows and DGL blocks (or the same whole graph for every layer)."""
        h = F.dropout(h, self.input_dropout, self.training)
        for index, (layer, graph) in enumerate(zip(self.convs, graphs, strict=True)):
            h = layer(graph, h)
            last = index + 1 == len(self.convs)
            if h.dim() == 3:
                h = h.mean(1) if last else h.flatten(1)
            if not last:
                h = F.dropout(activate(h, self.activation), self.dropout, self.training)
        return h

    @torch.no_grad()
    def load_from(self, model: Model) -> None:
        """Copy the parameters of `model` to the convolutions."""
        for conv_layer, layer in zip(self.convs, model.layers, strict=True):
            for ours, theirs, turned in _SAME[type(layer)]:
                source = layer.get_parameter(ours)
                target = conv_layer.get_parameter(theirs)
                target.copy_((source.T if turned else source).reshape(target.shape))

    @torch.no_grad()
    def store_to(self, model: Model) -> None:
        """Copy the trained parameters to `model`, for the evaluation that all paradigms share."""
        for conv_layer, layer in zip(self.convs, model.layers, strict=True):
            for ours, theirs, turned in _SAME[type(layer)]:
                target = layer.get_parameter(ours)
                source = conv_layer.get_parameter(theirs)
                target.copy_((source.T if turned else source).reshape(target.shape))


SUPPORTED = "model=sage, gcn, gat or gin, with model.bias=true, model.residual=false and model.norm=false"


def refusal_of(model: ModelOptions) -> Refusal | None:
    """Why DGL's convolutions cannot replace the layers of a model; None if they can."""
    if (
        not isinstance(model, SAGEOptions | GCNOptions | GATOptions | GINOptions)
        or type(model).__base__ is not ModelOptions
    ):
        return Refusal(f"{choice_of(model)} has no counterpart among DGL's convolutions")
    if model.residual or model.norm or not model.bias:
        return Refusal("model.residual, model.norm and model.bias=false are not part of the DGL script")
    if isinstance(model, GATOptions) and model.out_heads > 1:
        return Refusal("several output heads share one bias in gnnexp, and each has its own in DGL's GATConv")
    return None


def adds_self_loops(model: ModelOptions) -> bool:
    """Whether the DGL script must add self loops to its graph."""
    return isinstance(model, GCNOptions | GATOptions) and model.self_loops


def _conv(layer: nn.Module) -> nn.Module:
    """The DGL convolution for a layer of gnnexp."""
    if isinstance(layer, SAGELayer):
        return conv.SAGEConv(layer.in_dim, layer.out_dim, "mean").to(layer.weight)  # type: ignore[no-any-return]
    if isinstance(layer, GCNLayer):
        return conv.GraphConv(  # type: ignore[no-any-return]
            layer.in_dim, layer.out_dim, norm="both", allow_zero_in_degree=True
        ).to(layer.weight)
    if isinstance(layer, GATLayer):
        return conv.GATConv(  # type: ignore[no-any-return]
            layer.in_dim,
            layer.head_dim,
            layer.num_weights,
            attn_drop=layer.traits.weight_dropout,
            negative_slope=layer.slope,
            allow_zero_in_degree=True,
            bias=True,
        ).to(layer.weight)
    assert isinstance(layer, GINLayer)
    mlp = nn.Sequential(nn.Linear(layer.in_dim, layer.width), nn.ReLU(), nn.Linear(layer.width, layer.out_dim))
    convolution = conv.GINConv(mlp, "sum", learn_eps=True).to(layer.weight)
    convolution.eps.requires_grad_(layer.eps.requires_grad)
    return convolution  # type: ignore[no-any-return]
