"""Options of data sets whose vertices and edges may have types: a part of their classes, and no base of data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.splits.held_out import LinkSplit, check_link_split
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.errors import DataError, Problem
from gnnexp.graph.merging import MergeWeights


@dataclass(kw_only=True, eq=False)
class GraphOptions:
    """What happens to edges, and the split.

    Attributes:
        target: type of the vertices with labels; null = the only one.
        train: share of training vertices, if the split is drawn.
        val: share of validation vertices, if the split is drawn; the rest is test.
        seed: seed of the split.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        symmetrize: add the reverse of each edge.
        inverse_relations: the reverse of an edge of type r has type R + r; null = if there are several types of
            vertices.
        self_loops: `keep` or `remove`.
        duplicates: `merge` or `keep` parallel edges.
        merge_weights: the weight of merged edges: the `sum`, `mean`, `max` or `min`; `error` refuses different ones.
            Where a format has a rule, this is the default.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    target: str | None = None
    train: float = 0.6
    val: float = 0.2
    seed: int = 0
    sparse: Sparse = "auto"
    symmetrize: bool = True
    inverse_relations: bool | None = None
    self_loops: Literal["keep", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    merge_weights: MergeWeights = "error"
    link_split: LinkSplit = None

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        check_link_split(self.link_split)


def check_inverse_relations(inverse_relations: bool | None, num_relations: int) -> None:
    """Refuse types for reverses where edges have none themselves: such a graph stays without types.

    Raises:
        DataError: `inverse_relations` is asked for, and there is one type of edges.
    """
    if inverse_relations and num_relations < 2:
        raise DataError(
            Problem(
                "dataset.inverse_relations",
                True,
                "the edges of this graph have one type",
                "set dataset.inverse_relations=null, or give edges of several types",
            )
        )
