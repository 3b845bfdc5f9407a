"""How ranks share columns, which coupled layers project rows before they aggregate them, and what either order sends.

A layer with constant weights may do either. Other layers project first, and so does layer 1 if features are sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gnnexp.comm.tensor_split import even_bounds, even_sizes, values_moved
from gnnexp.models.layer import ColumnCuts, Layer

Order = Literal["aggregate", "project", "cheapest"]


@dataclass(frozen=True)
class Inputs:
    """What the order of layer 1 depends on.

    Attributes:
        sparse: whether features are sparse. Then they are projected first.
        trained: whether features are trained. If not, their columns are on the ranks from the start.
    """

    sparse: bool
    trained: bool


@dataclass(frozen=True)
class ColumnShares:
    """How ranks share rows and columns.

    Attributes:
        num_nodes: V.
        num_ranks: P.
        pad: whether columns are filled up with zeros, to a multiple of P.
    """

    num_nodes: int
    num_ranks: int
    pad: bool = False

    @property
    def rows(self) -> list[int]:
        """`[P]` number of vertices that each rank finishes."""
        return even_sizes(self.num_nodes, self.num_ranks)

    def filled(self, width: int) -> int:
        """Number of columns that are split if rows have `width` columns."""
        return -(-width // self.num_ranks) * self.num_ranks if self.pad else width

    def bounds(self, cuts: Sequence[int]) -> list[int]:
        """`[P + 1]` columns at which the ranks' shares begin, and the number of all: as many of the `cuts` for each."""
        return [cuts[stretch] for stretch in even_bounds(len(cuts) - 1, self.num_ranks)]

    def cuts(self, layer: Layer, *, projects: bool) -> ColumnCuts:
        """Where the rows that a coupled layer aggregates may be cut into columns."""
        if projects and layer.traits.edge_projection is not None:
            return layer.cuts
        everywhere = range(self.filled(layer.width if projects else layer.in_dim) + 1)
        return ColumnCuts(everywhere, everywhere)


def must_project(layer: Layer, index: int, inputs: Inputs) -> bool:
    """Whether layer `index` can only aggregate projected rows."""
    return layer.traits.kind != "static" or (index == 0 and inputs.sparse)


def projected_layers(layers: Sequence[Layer], order: Order, inputs: Inputs, shares: ColumnShares) -> tuple[bool, ...]:
    """For each layer: whether it aggregates projected rows. If both orders send as much, it does not."""

    def projects(index: int, layer: Layer) -> bool:
        if order != "cheapest" or must_project(layer, index, inputs):
            return order == "project" or must_project(layer, index, inputs)
        first, after = (layer_values(layer, index, inputs, shares, projects=way) for way in (True, False))
        return first < after

    return tuple(projects(index, layer) for index, layer in enumerate(layers))


def layer_values(layer: Layer, index: int, inputs: Inputs, shares: ColumnShares, *, projects: bool) -> int:
    """Values that all ranks send for a layer in a step, forward and backward.

    Rows are split and gathered, then their gradients. The columns of features that are not trained are here already,
    and take no gradient. Attention also shares its keys, 2K columns of every vertex, and sums their gradients.
    """
    cuts = shares.cuts(layer, projects=projects)
    gathered = values_moved(shares.rows, shares.bounds(cuts.sums))
    if not projects and index == 0 and not inputs.trained:
        return gathered
    split = values_moved(shares.rows, shares.bounds(cuts.rows))
    keys = 2 * layer.num_weights * (shares.num_ranks - 1) * shares.num_nodes
    return 2 * (split + gathered + (keys if layer.traits.kind == "projected" else 0))
