"""Which ids are in a set of ids that is kept ascending: without sorting it again, as `torch.isin` does."""

from __future__ import annotations

import torch
from torch import Tensor


def contains(ascending: Tensor, ids: Tensor) -> Tensor:
    """`[n]` bool: whether each of `ids` `[n]` is among the distinct `ascending` `[m]`; O(n log m)."""
    if not ascending.numel():
        return torch.zeros(ids.shape, dtype=torch.bool)
    places = torch.searchsorted(ascending, ids.to(ascending.dtype)).clamp_(max=ascending.numel() - 1)
    return ascending[places] == ids
