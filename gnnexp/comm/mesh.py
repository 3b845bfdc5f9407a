"""Ranks as a grid with named axes, so that no other code computes rank numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Mesh:
    """All ranks of a run in a grid. Ranks along the last axis are consecutive.

    `Mesh.of(groups=2, parts=3)` has the ranks 0, 1, 2 and 3, 4, 5. A group along `parts` is one of these rows; a group
    along `groups` is a column: 0 and 3, 1 and 4, 2 and 5.

    Attributes:
        axes: name and size of each axis.
    """

    axes: tuple[tuple[str, int], ...]

    @staticmethod
    def of(**axes: int) -> Mesh:
        """A mesh with these axes; the last axis varies fastest."""
        return Mesh(tuple(axes.items()))

    def groups(self, axis: str) -> list[list[int]]:
        """Groups of ranks that differ along `axis` only, each in the order of the axis."""
        sizes = dict(self.axes)
        grid = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
        groups: list[list[int]] = np.moveaxis(grid, list(sizes).index(axis), -1).reshape(-1, sizes[axis]).tolist()
        return groups

    def place(self, axis: str, rank: int) -> int:
        """A rank's coordinate along an axis."""
        return next(group.index(rank) for group in self.groups(axis) if rank in group)
