"""A model that differs by rank: what tests of exactness must find."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Layer
from gnnexp.models.sage import SAGELayer, SAGEOptions


class InexactLayer(SAGELayer):
    """Every rank has a self part of its own, which is not what one worker computes."""

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        return super().project_self(h, dims) * (1 + rank)


class Inexact(SAGEOptions):
    """A stack of them."""

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        made = super().make_layer(index, in_dim, out_dim, num_relations)
        made.__class__ = InexactLayer
        return made
