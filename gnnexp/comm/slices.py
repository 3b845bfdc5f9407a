"""Parameters that are divided over ranks: consecutive slices, in the order of the ranks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

# For each parameter: the dimension that is divided over ranks, and the position of this rank's slice in the whole.
Slices = Mapping[str, tuple[int, slice]]
_NAME = "slice_of_rank"


def mark_slice(parameter: nn.Parameter, dim: int, own: slice) -> None:
    """Mark a parameter as this rank's slice; parameters without a mark are the same on every rank."""
    setattr(parameter, _NAME, (dim, own))


def slices_of(module: nn.Module) -> Slices:
    """The sliced parameters of a module by name."""
    marked = {name: getattr(parameter, _NAME, None) for name, parameter in module.named_parameters()}
    return {name: found for name, found in marked.items() if found is not None}
