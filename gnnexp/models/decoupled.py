"""The decoupled twin of a model (NeutronTP, section 4.1): all dense updates first, then all propagations.

First, L times: h = finish(dense(project(h), project_self(h))). This works row by row, without edges.

Then, L times: x = propagate(sum of w * x over in-edges, x). This is linear in x, on any slice of its columns.

The weights w are those of the last layer. They are static, or attention: computed once from the keys of the last dense
update, averaged over heads, with dropout. The twin differs from the coupled model: for GCN it is Â^L MLP(X).
docs/decoupled.md lists the twins of all models, and the parameters that take no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnexp.components.options import with_options
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import InputRows, Rows, StoredRows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.local import destination_rows, normalised_weights, whole_and_own
from gnnexp.models.model import Exchange, Model, Preactivate
from gnnexp.ops.backend import Drop

Keys = tuple[Tensor, Tensor]


def dense_update(model: Model, index: int, ids: Tensor, h: Rows, key: BatchKey | None) -> tuple[Tensor, Keys | None]:
    """Run one layer without its edges.

    Args:
        model: a model that is set up and has contract layers only.
        index: number of the layer, from 0.
        ids: `[n]` original ids of the rows.
        h: `[n, Din]` input rows.
        key: key of the dropout masks, None for inference.

    Returns:
        `([n, out], keys)`; keys are None unless this is the last layer of a model with edge scores.
    """
    layer = contract_layer(model, index)
    dropped = model.drop_input(index, ids, h, key)
    neighbour = layer.project(dropped)
    own = None if layer.traits.self_is_neighbour else layer.project_self(dropped)
    out = model.finish_layer(index, ids, layer.preactivation(layer.dense(neighbour, own)), layer.residual_part(h))
    last = index == model.num_layers - 1
    if not last or layer.traits.kind != "projected":
        return out, None
    return out, layer.keys_of_projected(neighbour) or layer.keys(dropped)


def propagation_weight(model: Model, block: Block, keys: Keys | None, key: BatchKey | None) -> Tensor | None:
    """`[E, 1]` weights of all propagations, None for ones.

    Args:
        model: a model that is set up.
        block: the edges.
        keys: `([S, K], [D, K])` keys of sources and destinations, or None for a model without edge scores.
        key: key of attention dropout.
    """
    layer = contract_layer(model, model.num_layers - 1)
    drop: Drop | None = model.drop(Purpose.ATTENTION_DROPOUT, model.num_layers - 1, layer.traits.weight_dropout, key)
    weight = normalised_weights(layer, block, keys, drop)
    return weight if weight is None or weight.shape[1] == 1 else weight.mean(1, keepdim=True)


def propagate(layer: Layer, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
    """One propagation of any columns, from rows `[S, d]` to rows `[D, d]`; autograd gives its transpose."""
    whole, own = whole_and_own(block, x)
    if weight is None:
        summed = layer.aggregate(block, whole, None)
    else:
        summed = layer.backend.sums.aggregate(block, whole, weight, None)
    return layer.propagate(Destinations.of(block), summed, own if has_own_part(layer) else None)


def propagate_back(layer: Layer, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
    """The transpose of `propagate` without parameters, from `[D, d]` to `[S, d]`. It does not need the forward rows."""
    zeros = torch.zeros_like(gradient)
    with torch.enable_grad():
        summed, own = zeros.detach().requires_grad_(), zeros.detach().requires_grad_() if has_own_part(layer) else None
        out = layer.propagate(Destinations.of(block), summed, own)
    parts = torch.autograd.grad(out, (summed,) if own is None else (summed, own), gradient)
    back = layer.aggregate_back(block, parts[0], weight)
    if own is not None:
        assert block.dst_positions is None, "destinations are the first sources"
        back[: block.num_dst] += parts[1]
    return back


def has_parameters(layer: Layer, block: Block) -> bool:
    """Whether `Layer.propagate` uses parameters of the layer."""
    first = Destinations(block.dst_ids[:1], block.degree[:1])
    row = torch.zeros(first.ids.numel(), 1, dtype=next(layer.parameters()).dtype, device=block.sources.device)
    with torch.enable_grad():
        out = layer.propagate(first, row, row if has_own_part(layer) else None)
    return out.requires_grad


def has_own_part(layer: Layer) -> bool:
    """Whether `Layer.propagate` uses the destination's own row, and not only rows of its neighbours."""
    return layer.traits.self_is_neighbour or type(layer).project_self is not Layer.project_self


def contract_layer(model: Model, index: int) -> Layer:
    """Layer `index` as a contract layer. Checks refuse other layers for decoupling and tensor parallelism."""
    layer = model.stack[index]
    assert isinstance(layer, Layer)
    return layer


class _Step(nn.Module):
    """A layer for inference, which reads its width only."""

    def __init__(self, out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim


class DecoupledModel(Model):
    """The serial twin as a model of 2L layers: L dense ones and L propagations. Keys are extra columns of x.

    Args:
        base: the coupled model, set up. The twin shares its parameters.
    """

    def __init__(self, base: Model) -> None:
        super().__init__(with_options(base.options, layers=2 * base.num_layers))
        self.base, self.backend, self.in_dim = base, base.backend, base.in_dim
        last = contract_layer(base, base.num_layers - 1)
        self.classes, self.num_keys = last.out_dim, last.num_weights if last.traits.kind == "projected" else 0
        rows = self.classes + 2 * self.num_keys
        for width in [*base.widths[1:-1], *[rows] * base.num_layers, self.classes]:
            self.layers.append(_Step(width))

    def is_row_local(self, index: int) -> bool:
        """Whether layer `index` is a dense update: it reads no neighbours."""
        return index < self.base.num_layers

    def run_layer(
        self,
        index: int,
        block: Block,
        h: InputRows,
        key: BatchKey | None,
        exchange: Exchange | None = None,
        preactivate: Preactivate | None = None,
    ) -> Tensor:
        """A dense update of the destinations, or a propagation."""
        assert exchange is None and preactivate is None, "the twin runs on one rank and in one piece"
        assert not isinstance(h, StoredRows), "its first layer is dense"
        if self.is_row_local(index):
            out, keys = dense_update(self.base, index, block.dst_ids, destination_rows(block, h), key)
            return out if keys is None else torch.cat((out, *keys), 1)
        assert isinstance(h, Tensor)
        keys = None
        if self.num_keys:
            h, source, destination = torch.split_with_sizes(h, [self.classes, self.num_keys, self.num_keys], 1)
            keys = source.contiguous(), destination[: block.num_dst].contiguous()
        weight = propagation_weight(self.base, block, keys, key)
        layer = contract_layer(self.base, self.base.num_layers - 1)
        out = propagate(layer, block, h.contiguous(), weight)
        if keys is None or index == self.num_layers - 1:
            return out
        return torch.cat((out, keys[0][: block.num_dst], keys[1]), 1)
