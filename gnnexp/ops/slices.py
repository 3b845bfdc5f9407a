"""Parameters of which every rank has a slice: consecutive slices, in the order of the ranks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

# Of a parameter: the dimension in which it is sliced over ranks, and where this rank's slice lies in the whole.
Slices = Mapping[str, tuple[int, slice]]
_NAME = "slice_of_rank"


def mark_slice(parameter: nn.Parameter, dim: int, own: slice) -> None:
    """Say that a parameter is this rank's slice of a whole one; all others are the same on every rank."""
    setattr(parameter, _NAME, (dim, own))


def slices_of(module: nn.Module) -> Slices:
    """The sliced parameters of a module by name."""
    marked = {name: getattr(parameter, _NAME, None) for name, parameter in module.named_parameters()}
    return {name: found for name, found in marked.items() if found is not None}
