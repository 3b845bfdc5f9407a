"""Modules with PyG's signature that know nothing of PyG: one takes a pair, one the rows of all vertices."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PairMean(nn.Module):
    """Mean of the in-neighbours, and a self part."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.neighbour, self.own = nn.Linear(in_dim, out_dim, bias=False), nn.Linear(in_dim, out_dim)

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        x_src, x_dst = x
        messages = self.neighbour(x_src)[edge_index[0]]
        summed = messages.new_zeros(x_dst.shape[0], messages.shape[1]).index_add(0, edge_index[1], messages)
        degree = torch.bincount(edge_index[1], minlength=x_dst.shape[0]).clamp(min=1).unsqueeze(1)
        return self.own(x_dst) + summed / degree


class SquareGates(nn.Module):
    """Gated sums of the in-neighbours, from one matrix of rows. Self loops have a gate of their own."""

    def __init__(self, in_dim: int, out_dim: int, *, slope: float = 0.1) -> None:
        super().__init__()
        self.value, self.gate, self.slope = nn.Linear(in_dim, out_dim), nn.Linear(in_dim, out_dim), slope

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, destination = edge_index
        assert x.dim() == 2, "one matrix"
        gates = torch.sigmoid(self.gate(x)[source] + self.gate(x)[destination])
        gates = gates * torch.where(source == destination, self.slope, 1.0).to(x.dtype).unsqueeze(1)
        return self.value(x).index_add(0, destination, gates * self.value(x)[source])


class SourceDegrees(PairMean):
    """Divides messages by the out-degrees of sources: no row of in-edges alone."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        degree = torch.bincount(edge_index[0], minlength=x[0].shape[0]).clamp(min=1).unsqueeze(1)
        return super().forward((x[0] / degree, x[1]), edge_index)
