"""GraphSAGE with mistakes that a GPU is slow with, or refuses; on CPU nobody notices."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.sage import SAGELayer, SAGEOptions


class ItemLayer(SAGELayer):
    """Asks the GPU for a number."""

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        if aggregated.abs().max().item() > 1e6:  # waits
            raise ValueError("too large")
        return super().mix(dst, aggregated, self_)

    def _hasty(self, dst: Destinations, aggregated: Tensor, own: Tensor) -> Tensor:
        if aggregated.abs().max().item() > 1e6:  # waits
            raise ValueError("too large")
        return self._mixed_and_biased(dst, aggregated, own)

    traits = replace(SAGELayer.traits, mixed_and_biased=_hasty)


class HostLayer(SAGELayer):
    """Brings rows to the host and back."""

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        return super().mix(dst, aggregated.cpu().to(aggregated.device), self_)  # crosses

    def _hasty(self, dst: Destinations, aggregated: Tensor, own: Tensor) -> Tensor:
        return self._mixed_and_biased(dst, aggregated.cpu().to(aggregated.device), own)  # crosses

    traits = replace(SAGELayer.traits, mixed_and_biased=_hasty)


class MixedLayer(SAGELayer):
    """Forgets where the rows are."""

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        projected = super().project(h, dims)
        return projected * torch.ones(projected.shape[1])  # mixes

    def _hasty(self, dst: Destinations, aggregated: Tensor, own: Tensor) -> Tensor:
        return self._mixed_and_biased(dst, aggregated * torch.ones(aggregated.shape[1]), own)  # mixes

    traits = replace(SAGELayer.traits, mixed_and_biased=_hasty)


class _Hasty(SAGEOptions):
    layer: type[SAGELayer]

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        made = super().make_layer(index, in_dim, out_dim, num_relations)
        made.__class__ = self.layer
        return made


class WithItem(_Hasty):
    """`.item()` in every layer."""

    layer = ItemLayer


class WithHost(_Hasty):
    """`.cpu()` in every layer."""

    layer = HostLayer


class WithMix(_Hasty):
    """A tensor of the host in every layer."""

    layer = MixedLayer
