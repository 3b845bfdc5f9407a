"""Decoders: they score a link from the model's outputs of its ends.

Your own decoder must define `score`, and `build` and `reset` if it has parameters. The inherited `against` calls
`score`; your own version may be faster.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, Problem
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.rows.products import product_gradients, score_pairs
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.tasks.pairs import Pairs

_NONE = np.empty(0, np.int64)


def products(
    outputs: Tensor, head: Tensor, relation: Tensor | None, tail: Tensor, weight: Tensor | None = None
) -> Tensor:
    """`[p]` sums over c of `outputs[head, c] * weight[relation, c] * outputs[tail, c]`, differentiable.

    On CPU, no tensor of shape `[p, C]` is allocated.

    Args:
        outputs: `[m, C]` outputs of vertices.
        head: `[p]` int64 rows of `outputs`, on the host.
        relation: `[p]` int64 rows of `weight`, on the host; None: all pairs use its first row.
        tail: `[p]` int64 rows of `outputs`, on the host.
        weight: `[R, C]` vectors of relations; None: no factor.
    """
    if outputs.device.type == "cpu":
        return _Products.apply(outputs, weight, head, tail, relation)  # type: ignore[no-any-return, no-untyped-call]
    first, second = (outputs.index_select(0, ends.to(outputs.device)) for ends in (head, tail))
    if weight is not None:
        first = first * (weight if relation is None else weight.index_select(0, relation.to(outputs.device)))
    return (first * second).sum(1)


class _Products(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        outputs: Tensor,
        weight: Tensor | None,
        head: Tensor,
        tail: Tensor,
        relation: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(outputs, weight)
        ctx.pairs = pairs = _Ends(head.numpy(), tail.numpy(), _NONE if relation is None else relation.numpy())
        scores = score_pairs(_rows(outputs), pairs.head, pairs.tail, pairs.relation, _rows(weight, outputs))
        return torch.from_numpy(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        outputs, weight = ctx.saved_tensors
        pairs: _Ends = ctx.pairs
        of_outputs, of_weight = product_gradients(
            _rows(outputs),
            pairs.head,
            pairs.tail,
            pairs.relation,
            _rows(weight, outputs),
            np.ascontiguousarray(gradient.numpy()),
        )
        return torch.from_numpy(of_outputs), None if weight is None else torch.from_numpy(of_weight), None, None, None


class _Ends(NamedTuple):
    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray


def _rows(values: Tensor | None, like: Tensor | None = None) -> np.ndarray:
    """`values` `[n, C]` as a contiguous array for the kernels; without values an empty array of `like`'s dtype."""
    if values is None:
        assert like is not None
        return _rows(like[:0])
    found: np.ndarray = values.detach().contiguous().numpy()
    return found


_NUMBER = -1  # the decoder's layer number in the key of initialisation; layers of models count from 0


class Decoder(nn.Module, ABC):
    """Scores links. It is made from scalars, and `setup` makes its parameters.

    Attributes:
        version: see `gnnexp.tasks.base.Task`.
        typed: whether scores depend on relations.
        dim: C, number of columns of the outputs that the decoder reads.
    """

    version: ClassVar[int] = 1
    typed: ClassVar[bool] = True
    dim: int

    def setup(self, dim: int, num_relations: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        """Make and draw the parameters. They depend on the seed only: all ranks get the same.

        Args:
            dim: C, number of columns of the outputs.
            num_relations: R, number of relations of the links; 0 if links have no relations.
            seed: seed of the run.
            dtype: data type of parameters and scores.
            device: device of the parameters.
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
            head: `[p, C]` outputs of the heads.
            relation: `[p]` int64 relations, or None if links have no relations.
            tail: `[p, C]` outputs of the tails.
        """

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """`[p]` logits in training, from the outputs `[m, C]` of `pairs.vertices`. By default, `score` of their rows.

        Override this for dropout (`pairs.drop` applies the masks), or to avoid a copy of rows for each pair.
        """
        return self.score(*self.rows(outputs, pairs))

    def rows(self, outputs: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor | None, Tensor]:
        """Output rows of heads, relations, and output rows of tails: the arguments of `score`."""
        device = outputs.device
        head, tail = (outputs.index_select(0, ends.to(device)) for ends in (pairs.head, pairs.tail))
        return head, None if pairs.relation is None else pairs.relation.to(device), tail

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Peak memory of `trained` and its gradients, in floats per pair.

        Args:
            dim: C, number of columns of the outputs.
            device: `cpu` or `cuda`.
        """
        return 6 * dim

    def relations(self) -> Tensor | None:
        """`[R, .]` parameters of relations, which `task.l2` penalises like the pairs' ends; None if there are none.

        If links have no relations, all links use one row.
        """
        return None

    def against(self, rows: Tensor, relation: Tensor | None, others: Tensor, *, heads: bool = False) -> Tensor:
        """`[b, n]` logits of each row with each candidate. Candidates are tails, or heads if `heads` is true.

        Args:
            rows: `[b, C]` outputs of the ends that are kept.
            relation: `[b]` int64 relations, or None.
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
        """Memory of `against` in floats per score, without the score. It limits how many scores are made at once."""
        return 4 * self.dim


class _ProductDecoder(Decoder):
    """Sums of products of both ends' outputs and, if there are `relations`, of their vectors."""

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """`[p]` logits, row by row."""
        return (self._scaled(head, relation) * tail).sum(1)

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """`[p]` logits, on CPU without a copy of rows for each pair."""
        weight = self.relations()
        return products(outputs, pairs.head, None if weight is None else pairs.relation, pairs.tail, weight)

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Memory of `products`: only a GPU holds rows for each pair."""
        return super().floats_per_pair(dim, device) if device == "cuda" else 4

    def against(self, rows: Tensor, relation: Tensor | None, others: Tensor, *, heads: bool = False) -> Tensor:
        """`[b, n]` logits as one matrix product. Heads and tails have the same formula."""
        return self._scaled(rows, relation) @ others.T

    @property
    def floats_per_score(self) -> int:
        """0: the matrix product needs only its result."""
        return 0

    def _scaled(self, rows: Tensor, relation: Tensor | None) -> Tensor:
        """`[p, C]` rows times the vectors of the pairs' relations; one vector if links have no relations."""
        weight = self.relations()
        if weight is None:
            return rows
        return rows * (weight if relation is None else weight.index_select(0, relation))


class Dot(_ProductDecoder):
    """h . t: has no parameters, and ignores relations."""

    typed = False


class DistMult(_ProductDecoder):
    """sum_c h_c r_c t_c with one vector r per relation (Yang et al., ICLR 2015). Links without relations share one r.

    `relation_weight` `[R, C]` has Glorot's uniform initialisation.
    """

    def build(self, num_relations: int) -> None:
        """Make one vector per relation."""
        self.relation_weight = nn.Parameter(torch.empty(max(1, num_relations), self.dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw the vectors with Glorot's uniform initialisation."""
        nn.init.xavier_uniform_(self.relation_weight, generator=generator)

    def relations(self) -> Tensor:
        """`[R, C]` vectors of the relations."""
        return self.relation_weight


class MLP(Decoder):
    """An MLP with ReLU on the product h * t (OGB's `LinkPredictor`). It ignores relations.

    Args:
        layers: number of linear layers; the last one has a single output column.
        hidden: number of columns between the layers; null = the number of columns of the model's output.
        dropout: probability of dropout after every ReLU.
    """

    typed = False

    def __init__(self, layers: int = 3, hidden: int | None = None, dropout: float = 0.0) -> None:
        problems = []
        if not 0 <= dropout < 1:
            problems.append(Problem("task.decoder.dropout", dropout, "must be in [0, 1)", "+task.decoder.dropout=0.5"))
        if layers < 1:
            problems.append(Problem("task.decoder.layers", layers, "must be at least 1", "+task.decoder.layers=3"))
        if hidden is not None and hidden < 1:
            problems.append(
                Problem(
                    "task.decoder.hidden",
                    hidden,
                    "must be at least 1, or null for the columns of the model's output",
                    "+task.decoder.hidden=null",
                )
            )
        ConfigError.raise_all(problems)
        super().__init__()
        self.num_layers, self.hidden, self.dropout = layers, hidden, dropout

    def build(self, num_relations: int) -> None:
        """Make the linear layers."""
        width = self.dim if self.hidden is None else self.hidden
        dims = [self.dim, *[width] * (self.num_layers - 1), 1]
        self.maps = nn.ModuleList(nn.Linear(dims[i], dims[i + 1]) for i in range(self.num_layers))

    def reset(self, generator: torch.Generator) -> None:
        """Draw parameters as `nn.Linear` does: uniform between -1 and 1, divided by sqrt(input columns)."""
        for linear in self.maps:
            assert isinstance(linear, nn.Linear)
            bound = 1 / math.sqrt(linear.in_features)
            for parameter in linear.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        """`[p]` logits, row by row, without dropout."""
        return self._mapped(head * tail, lambda rows, layer: rows)

    def trained(self, outputs: Tensor, pairs: Pairs) -> Tensor:
        """`[p]` logits, with dropout."""
        head, _, tail = self.rows(outputs, pairs)
        return self._mapped(head * tail, lambda rows, layer: pairs.drop(rows, self.dropout, layer))

    def floats_per_pair(self, dim: int, device: str) -> int:
        """Both ends, their product, all hidden layers before and after ReLU and dropout, and gradients."""
        width = dim if self.hidden is None else self.hidden
        return 3 * dim + (self.num_layers - 1) * (4 if self.dropout else 2) * width + 2 * max(dim, width)

    def _mapped(self, rows: Tensor, drop: Callable[[Tensor, int], Tensor]) -> Tensor:
        for layer, linear in enumerate(self.maps[:-1]):
            rows = drop(linear(rows).relu(), layer)
        return self.maps[-1](rows).squeeze(1)  # type: ignore[no-any-return]

    @property
    def floats_per_score(self) -> int:
        """Both ends, their product, and one hidden layer before and after ReLU."""
        return 3 * self.dim + 2 * (self.dim if self.hidden is None else self.hidden)
