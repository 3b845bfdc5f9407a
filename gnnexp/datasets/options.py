"""Options that several data sets have: a part of their classes, and no base of data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.splits.held_out import NO_REVERSES, SAME_TYPE, LinkSplit, check_link_split, hold_out
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights
from gnnexp.kernels.graph.transpose import transpose_csc


@dataclass(kw_only=True, eq=False)
class LinkOptions:
    """Links that are held out of a graph that is made for tasks of vertices.

    Attributes:
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
        seed: seed of the draw of these links, and of the split of vertices, if that is drawn.
    """

    link_split: LinkSplit = None
    seed: int = 0

    def check_links(self, self_loops: str = "remove") -> None:
        """Check `link_split`, also against `dataset.self_loops`.

        Raises:
            ConfigError: the shares are wrong, or self loops that are added would be links.
        """
        check_link_split(self.link_split)
        if self.link_split is not None and self_loops == "add":
            raise ConfigError(
                Problem(
                    "dataset.self_loops",
                    "add",
                    "added self loops would be links to hold out (dataset.link_split)",
                    "set dataset.self_loops=remove; models add their own self term",
                )
            )

    def with_links(
        self, graph: Graph, *, symmetrize: bool, inverses: int | None = None, names: Sequence[str] = ()
    ) -> Graph:
        """The graph without the links that are held out (`hold_out`); itself without `link_split`.

        Args:
            graph: a graph in memory.
            symmetrize: whether each edge has its reverse in the graph.
            inverses: R, if the reverse of an edge of type r has type R + r; None if it has the same type.
            names: names of the relations.

        Raises:
            DataError: see `hold_out`; or the graph has links of its own.
        """
        if self.link_split is not None and graph.links:
            raise DataError(own_links(self.link_split))
        reverses = NO_REVERSES if not symmetrize else inverses or SAME_TYPE
        return hold_out(graph, self.link_split, seed=self.seed, reverses=reverses, names=names)


def own_links(link_split: Mapping[str, float]) -> Problem:
    """The problem of data that come with links: these are the links to predict."""
    return Problem(
        "dataset.link_split", dict(link_split), "the dataset has links of its own", "set dataset.link_split=null"
    )


def is_symmetric(graph: Graph) -> bool:
    """Whether each edge of a graph without types has its reverse in the graph, as often."""
    back = transpose_csc(graph.indptr.numpy(), graph.indices.numpy(), graph.num_nodes)
    same = zip(back, (graph.indptr.numpy(), graph.indices.numpy()), strict=False)
    return all(np.array_equal(one, other) for one, other in same)


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
