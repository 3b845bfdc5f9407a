"""Decoders: the score of a link from the model's outputs of its ends.

A decoder of one's own says its parameters (`build`, `reset`) and `score`; `against` follows, slower than it need be.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, Problem
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.tasks.pairs import Pairs
from gnnexp.tasks.products import products

_NUMBER = -1  # of what is initialised; layers of models count from 0


class Decoder(nn.Module, ABC):
    """Scores links; made from scalars, it gets its parameters in `setup`.

    Attributes:
        typed: whether it tells relations apart.
        dim: C, columns of the outputs that it reads.
    """

    typed: ClassVar[bool] = True
    dim: int

    def setup(self, dim: int, num_relations: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        """Draw the parameters: a pure function of the seed, the same on every rank.

        Args:
            dim: C.
            num_relations: R of the links; 0 where they have no types.
            seed: of the run.
            dtype: of parameters and scores.
            device: where it lives.
        """
        self.dim = dim
        self.build(num_relations)
        self.to(torch.float64)
        self.reset(torch.Generator().manual_seed(stream(seed, Purpose.INIT, _NUMBER) >> 1))
        self.to(device=device, dtype=dtype)

    def build(self, num_relations: int) -> None:
        """Make the parameters, if there are any."""

    def reset(self, generator: torch.Generator) -> None:
        """Draw initial parameters."""

    @abstractmethod
    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """`[p]` logits of pairs.

        Args:
            head: `[p, C]` outputs.
            relation: `[p]` int64, or None where links have no types.
            tail: `[p, C]` outputs.
        """

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """`[p]` logits in training, from the outputs `[m, C]` of `pairs.vertices`; here `score` of their rows.

        For decoders with dropout, whose masks are `pairs.drop`, and for those that need no rows per pair.
        """
        return self.score(*self.rows(outputs, pairs))

    def rows(self, outputs: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor | None, Tensor]:
        """Heads' rows, relations and tails' rows, as `score` takes them."""
        device = outputs.device
        head, tail = (outputs.index_select(0, ends.to(device)) for ends in (pairs.head, pairs.tail))
        return head, None if pairs.relation is None else pairs.relation.to(device), tail

    def floats_per_pair(self, dim: int, device: str) -> int:
        """What `trained` and its gradients hold per pair at most, in floats, for outputs of `dim` columns.

        Args:
            dim: C.
            device: `cpu` or `cuda`.
        """
        return 6 * dim

    def relations(self) -> Tensor | None:
        """`[R, .]` parameters of relations, which `task.l2` penalises with pairs' ends; None: it has none.

        A single row is that of all links.
        """
        return None

    def against(self, rows: Tensor, relation: Tensor | None, others: Tensor, *, heads: bool = False) -> Tensor:
        """`[b, n]` logits of every row with every one of the others, which are the tails or (`heads`) the heads.

        Args:
            rows: `[b, C]` outputs of the ends that are kept.
            relation: `[b]` int64, or None.
            others: `[n, C]` outputs of the candidates.
            heads: whether the candidates are heads.
        """
        count = others.shape[0]
        own, other = rows.repeat_interleave(count, 0), others.repeat(rows.shape[0], 1)
        kinds = None if relation is None else relation.repeat_interleave(count)
        scores = self.score(other, kinds, own) if heads else self.score(own, kinds, other)
        return scores.view(rows.shape[0], count)

    @property
    def floats_per_score(self) -> int:
        """What `against` holds beside each score, in floats; decides how many are made at once."""
        return 4 * self.dim


class Dot(Decoder):
    """h . t: no parameters, blind to relations."""

    typed = False

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """Row by row."""
        return (head * tail).sum(1)

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """Without rows per pair."""
        return products(outputs, pairs.head, None, pairs.tail)

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Of `products`: rows only on a GPU."""
        return super().floats_per_pair(dim, device) if device == "cuda" else 4

    def against(self, rows: Tensor, relation: Tensor | None, others: Tensor, *, heads: bool = False) -> Tensor:
        """One matrix product."""
        return rows @ others.T

    @property
    def floats_per_score(self) -> int:
        """Nothing."""
        return 0


class DistMult(Decoder):
    """sum_c h_c r_c t_c with a vector r per relation (Yang et al., ICLR 2015); links without types share one.

    `relation_weight` `[R, C]` is drawn as Glorot's matrices are.
    """

    def build(self, num_relations: int) -> None:
        """A vector per relation."""
        self.relation_weight = nn.Parameter(torch.empty(max(1, num_relations), self.dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot, uniform."""
        nn.init.xavier_uniform_(self.relation_weight, generator=generator)

    def relations(self) -> Tensor:
        """The vectors."""
        return self.relation_weight

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """Row by row."""
        return (head * self._vectors(relation) * tail).sum(1)

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """Without rows per pair."""
        return products(outputs, pairs.head, pairs.relation, pairs.tail, self.relation_weight)

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Of `products`: rows only on a GPU."""
        return super().floats_per_pair(dim, device) if device == "cuda" else 4

    def _vectors(self, relation: Tensor | None) -> Tensor:
        """`[p, C]`; `[1, C]` for links without types."""
        return self.relation_weight if relation is None else self.relation_weight.index_select(0, relation)

    def against(self, rows: Tensor, relation: Tensor | None, others: Tensor, *, heads: bool = False) -> Tensor:
        """One matrix product; heads and tails score alike."""
        return (rows * self._vectors(relation)) @ others.T

    @property
    def floats_per_score(self) -> int:
        """Nothing."""
        return 0


class MLP(Decoder):
    """An MLP with ReLU on the product h * t (OGB's `LinkPredictor`): blind to relations.

    Args:
        layers: number of linear maps, the last one to a single column.
        hidden: columns between them; null = the model's output's.
        dropout: probability after every ReLU.
    """

    typed = False

    def __init__(self, layers: int = 3, hidden: int | None = None, dropout: float = 0.0) -> None:
        problems = []
        if not 0 <= dropout < 1:
            problems.append(Problem("task.decoder.dropout", dropout, "must be in [0, 1)", "+task.decoder.dropout=0.5"))
        if layers < 1:
            problems.append(Problem("task.decoder.layers", layers, "must be at least 1", "+task.decoder.layers=3"))
        if hidden is not None and hidden < 1:
            problems.append(Problem("task.decoder.hidden", hidden, "must be at least 1, or null for the columns of the "
                                    "model's output", "+task.decoder.hidden=null"))
        ConfigError.raise_all(problems)
        super().__init__()
        self.num_layers, self.hidden, self.dropout = layers, hidden, dropout

    def build(self, num_relations: int) -> None:
        """The linear maps."""
        width = self.dim if self.hidden is None else self.hidden
        dims = [self.dim, *[width] * (self.num_layers - 1), 1]
        self.maps = nn.ModuleList(nn.Linear(dims[i], dims[i + 1]) for i in range(self.num_layers))

    def reset(self, generator: torch.Generator) -> None:
        """As `nn.Linear` does: uniform within 1 / sqrt(columns)."""
        for linear in self.maps:
            assert isinstance(linear, nn.Linear)
            bound = 1 / math.sqrt(linear.in_features)
            for parameter in linear.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """Row by row."""
        return self._mapped(head * tail, lambda rows, layer: rows)

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """With dropout."""
        head, _, tail = self.rows(outputs, pairs)
        return self._mapped(head * tail, lambda rows, layer: pairs.drop(rows, self.dropout, layer))

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Both ends and their product; every hidden layer before and after its activation and dropout; gradients."""
        width = dim if self.hidden is None else self.hidden
        return 3 * dim + (self.num_layers - 1) * (4 if self.dropout else 2) * width + 2 * max(dim, width)

    def _mapped(self, rows: Tensor, drop: Callable[[Tensor, int], Tensor]) -> Tensor:
        for layer, linear in enumerate(self.maps[:-1]):
            rows = drop(linear(rows).relu(), layer)
        return self.maps[-1](rows).squeeze(1)  # type: ignore[no-any-return]

    @property
    def floats_per_score(self) -> int:
        """Both ends, their product, and a hidden layer before and after its activation."""
        return 3 * self.dim + 2 * (self.dim if self.hidden is None else self.hidden)
