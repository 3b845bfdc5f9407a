"""R-GCN (Schlichtkrull et al., ESWC 2018): a matrix per relation, as sums of shared ones or of diagonal blocks."""

from __future__ import annotations

from typing import Literal

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.graph.shard import BlockNeeds
from gnnexp.models.layer import Layer
from gnnexp.models.model import Model
from gnnexp.models.relational import BasisLayer, BlockDiagonalLayer, NormBy

Decomposition = Literal["basis", "block"]
_WORDS = {"decomposition": ("basis", "block"), "norm_by": ("relation", "vertex")}


class RGCN(Model):
    """A stack of relational layers.

    Args:
        decomposition: every relation's matrix is a sum of `bases` shared ones with its own coefficients, or has
            `blocks` of its own along the diagonal.
        bases: B of `basis`; the paper's 2 for link prediction, up to 40 for entities.
        blocks: B of `block`, at most the columns of features, hidden layers and classes.
        norm_by: an edge is divided by the number of its destination's edges of its `relation`, or of all.
        hidden, layers, dropout, input_dropout, residual, norm, bias, kernel: as in `gnnexp.models.gcn.GCN`.
    """

    def __init__(
        self, hidden: int = 256, layers: int = 3, decomposition: Decomposition = "basis", bases: int = 2,
        blocks: int = 4, norm_by: NormBy = "relation", dropout: float = 0.5, input_dropout: float = 0.0,
        residual: bool = False, norm: bool = False, bias: bool = True, kernel: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden, layers=layers, dropout=dropout, input_dropout=input_dropout, residual=residual, norm=norm,
            bias=bias, kernel=kernel,
        )
        self.decomposition, self.bases, self.blocks, self.norm_by = decomposition, bases, blocks, norm_by

    def problems(self) -> list[Problem]:
        """Also: known words, bases and blocks that there can be."""
        wrong = super().problems()
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                wrong.append(Problem(f"model.{name}", getattr(self, name), f"must be {' or '.join(allowed)}",
                                     f"set model.{name}={allowed[0]}"))
        for name in ("bases", "blocks"):
            if getattr(self, name) < 1:
                wrong.append(Problem(f"model.{name}", getattr(self, name), "must be at least 1", f"model.{name}=2"))
        if self.decomposition == "block" and self.num_layers > 1 and 1 <= self.hidden < self.blocks:
            wrong.append(self._too_many("model.hidden", self.hidden))
        return wrong

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """Relations; for blocks dense rows, and a column of features and classes for each."""
        problems = super().check_data(experiment, facts)
        if not facts.typed or not facts.num_edges:
            lacks = "no edge types" if not facts.typed else "no edges, so no relations"
            problems.append(Problem("model", experiment.model.target, f"dataset {facts.name} has {lacks}",
                                    "choose a dataset with relations, or model=sage"))
        if self.decomposition == "basis":
            return problems
        if facts.sparse:
            problems.append(Problem("model.decomposition", "block", "blocks take dense rows, and the features are "
                                    "sparse", "set dataset.sparse=false, or model.decomposition=basis"))
        sizes = {"dataset features": facts.num_features, "dataset classes": facts.num_classes}
        return [*problems, *(self._too_many(what, size) for what, size in sizes.items() if 0 < size < self.blocks)]

    def _too_many(self, what: str, columns: int) -> Problem:
        return Problem("model.blocks", self.blocks, f"more blocks than columns: {what} has {columns}",
                       f"set model.blocks={columns} or fewer, or model.decomposition=basis")

    @property
    def needs(self) -> BlockNeeds:
        """Types of edges."""
        return BlockNeeds(edge_types=True)

    def num_matrices(self, num_relations: int) -> int:
        """Bases, or what blocks of all relations amount to, beside the others."""
        return 2 + (self.bases if self.decomposition == "basis" else -(-num_relations // self.blocks))

    @property
    def values_per_edge(self) -> int:
        """Weights of bases as attention's of heads; sums and projections, no more pairs of a relation than edges."""
        return 3 * self.bases if self.decomposition == "basis" else 2 * self.hidden

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th layer."""
        if self.decomposition == "basis":
            return BasisLayer(in_dim, out_dim, num_relations=self.num_relations, bases=self.bases,
                              norm_by=self.norm_by, **self.end_of_layer(index))
        return BlockDiagonalLayer(in_dim, out_dim, num_relations=self.num_relations, blocks=self.blocks,
                                  norm_by=self.norm_by, **self.end_of_layer(index))
