"""The operations that layers need from kernels, with four implementations (`model.kernel`: numba, triton, torch, dgl).

An implementation has three classes: sums over edges, weights of edges, and dropout of rows. A `Backend` holds one
object of each. Results of the implementations are equal up to rounding, forward and backward. They draw identical
dropout masks (docs/rooms.md, "Randomness").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows, StoredRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.dropout import quantised, survivor_scale
from gnnexp.ops.shortcuts import SplitDestinations

T = TypeVar("T")


@dataclass(frozen=True)
class Drop:
    """One dropout: a probability and the key of its mask.

    Attributes:
        p: probability that a value is dropped, rounded to units of 1/65536, so that 16 random bits decide.
        key: 64-bit key of the mask, from `counter.stream`.
        word: `key` as int64 tensor without dimensions on a GPU, None on CPU. The next step overwrites it
            (`masks.DropKeys`). A captured graph would repeat the same number in every step.
    """

    p: float
    key: int
    word: Tensor | None = field(default=None, compare=False)

    @property
    def threshold(self) -> int:
        """A value is dropped if its 16 random bits are below this threshold; 65536 drops all values."""
        return quantised(self.p)

    @property
    def scale(self) -> float:
        """The factor for values that are kept."""
        return survivor_scale(self.threshold)


class NeighbourSums(ABC):
    """Differentiable sums over in-edges of a block with E edges, S sources and D destinations."""

    @abstractmethod
    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`[D, d]`: `out[v, j]` = sum over in-edges e of v of `weight[e, column[j]] * x[src(e), j]`.

        Args:
            block: block with the edges.
            x: `[S, d]`.
            weight: `[E, K]`, or None for ones.
            column: `[d]` int64, the weight of each column, from 0 to K - 1; None if K = 1. Contiguous groups of equal
                width are fast.
        """

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """`[D, d]` sums of `scale[u] * x[u]` over the sources u, with constant `scale` `[S]` and `x` `[S, d]`."""
        return self.aggregate(block, x * scale.unsqueeze(1), None, None)

    def aggregate_stored(
        self, block: Block, x: StoredRows, weight: Tensor | None, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`[D, d]` sums (`aggregate` with `weight` `[E, 1]`, or `aggregate_scaled`), and `[D, d]` rows of destinations.

        If rows take a gradient, it is summed before it is rounded to the type of `x.values`.
        """
        rows, own = SplitDestinations.run(x.to_dense(), block.dst_places)
        sums = self.aggregate(block, rows, weight, None) if scale is None else self.aggregate_scaled(block, rows, scale)
        return sums, own

    @abstractmethod
    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`[D, K, d]`: for each k the sum of `weight[e, k] * x[src(e)]` over in-edges, from `[E, K]` and `[S, d]`."""

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]`: the transpose of `aggregate` with constant weights `[E, 1]`, None for ones; not differentiable.

        The result shares no memory with other tensors, so the caller may write to it.
        """
        x = gradient.new_zeros(block.num_src, gradient.shape[1])
        if block.num_edges == 0 or not x.numel():
            return x  # autograd would return one expanded zero, which cannot be written to
        with torch.enable_grad():
            x.requires_grad_()
            summed = self.aggregate(block, x, None if weight is None else weight.detach(), None)
        return torch.autograd.grad(summed, x, gradient)[0]


class EdgeWeights(ABC):
    """Differentiable scores and weights of a block's E edges, in K columns; it has S sources and D destinations."""

    @abstractmethod
    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """`[E, K]` = `src_key[src(e)] + dst_key[dst(e)]`, from `[S, K]` and `[D, K]`."""

    @abstractmethod
    def max(self, block: Block, score: Tensor) -> Tensor:
        """`[D, K]` largest score of each destination's in-edges, -inf without edges; has no gradient."""

    @abstractmethod
    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """`[E, K]` = `exp(score - peak[dst(e)])`; `peak` `[D, K]` is constant."""

    @abstractmethod
    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """`[D, K]` sum of `weight` `[E, K]` over each destination's in-edges."""

    @abstractmethod
    def dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """Dropout of `weight` `[E, K]` with a mask keyed by (src, dst, type, occurrence) and head."""

    @abstractmethod
    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`[E, K]` softmax(LeakyReLU(src_key + dst_key)) over each destination's in-edges, then dropout."""


class RowDropout(ABC):
    """Differentiable dropout of the rows of vertices. The mask of a row depends on the vertex, not on its position."""

    @abstractmethod
    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """Dropout of `x` `[N, d]`, which are d columns from `first_column` on of a matrix with `num_columns` columns.

        The mask depends only on the key, the original `ids` `[N]`, the column in that matrix, and `num_columns`.
        """

    @abstractmethod
    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """`dropout(relu(x))` in one pass; p may be 0."""

    def relu_dropout_rounded(self, x: Tensor, ids: Tensor, drop: Drop) -> Tensor:
        """`relu_dropout` of whole rows, rounded to bfloat16; so is the gradient."""
        return self.relu_dropout(x, ids, drop, x.shape[1]).bfloat16()

    def dropout_stored(self, x: StoredRows, ids: Tensor, drop: Drop) -> Tensor:
        """`dropout` of whole rows without gradient."""
        return self.dropout(x.to_dense(), ids, drop, x.shape[1])

    @abstractmethod
    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """`dropout` of sparse features; nonzeros get the same mask as in a dense matrix."""


@dataclass(frozen=True, eq=False)
class Backend:
    """The kernels of one implementation, and what they keep.

    Attributes:
        name: name of the implementation in `model.kernel`.
        sums, edges, rows: its three kinds of operations.
        pool: memory of outputs and gradients; None if torch allocates them.
        reads_transpose: whether backward passes read a block's transpose; if so, a chunk copies it to the device.
        reads_stored: whether kernels read rows where they are stored (`aggregate_stored`, `dropout_stored`), and read
            and write bfloat16.
        constants: values that layers computed from a block and the graph only, by block and key. They live as long as
            the block.
    """

    name: str
    sums: NeighbourSums
    edges: EdgeWeights
    rows: RowDropout
    pool: Pool | None = None
    reads_transpose: bool = False
    reads_stored: bool = False
    constants: WeakKeyDictionary[Block, dict[Hashable, Any]] = field(default_factory=WeakKeyDictionary)

    def constant(self, block: Block, key: Hashable, make: Callable[[Block], T]) -> T:
        """The result of the first call of `make(block)` for this block and key, so that later epochs reuse it."""
        known: dict[Hashable, T] = self.constants.setdefault(block, {})
        if key not in known:
            known[key] = make(block)
        return known[key]

    def attention_weight(
        self,
        block: Block,
        src_key: Tensor,
        dst_key: Tensor,
        slope: float,
        drop: Drop | None,
        factors: Tensor | None = None,
    ) -> Tensor:
        """`[E, K]`: `EdgeWeights.attention_weight`, multiplied with factors of edges `[E, 1]`, if there are any."""
        weight = self.edges.attention_weight(block, src_key, dst_key, slope, drop)
        return weight if factors is None else weight * factors

    def attention(
        self,
        block: Block,
        x: Tensor,
        src_key: Tensor,
        dst_key: Tensor,
        slope: float,
        drop: Drop | None,
        factors: Tensor | None = None,
    ) -> Tensor:
        """GAT: `[D, K * F]` sums of `x` `[S, K * F]` with weights softmax(LeakyReLU(src_key + dst_key)) over in-edges.

        Args:
            block: block with the edges.
            x: projected rows, one head after the other.
            src_key: `[S, K]`.
            dst_key: `[D, K]`.
            slope: slope of the LeakyReLU below 0.
            drop: dropout of the normalised weights, or None.
            factors: `[E, 1]` factors of messages, without a gradient, or None.

        Returns:
            The sums; 0 for destinations without edges.
        """
        heads = src_key.shape[1]
        column = torch.arange(x.shape[1]) // max(1, x.shape[1] // heads) if heads > 1 else None
        weight = self.attention_weight(block, src_key, dst_key, slope, drop, factors)
        return self.sums.aggregate(block, x, weight, column)

    def attention_aggregate_first(
        self,
        block: Block,
        x: Tensor,
        src_key: Tensor,
        dst_key: Tensor,
        slope: float,
        drop: Drop | None,
        factors: Tensor | None = None,
    ) -> Tensor:
        """`[D, K, d]`: like `attention`, with rows `x` `[S, d]` that all heads share."""
        return self.sums.aggregate_outer(block, x, self.attention_weight(block, src_key, dst_key, slope, drop, factors))

    def sparse_linear(self, rows: SparseRows, weight: Tensor) -> Tensor:
        """`[N, C]` = `rows @ weight.T`, differentiable in `weight` `[C, D]`. The columns are sources of a block."""
        num_rows, num_columns = rows.shape
        nowhere = torch.empty(0, dtype=torch.int64, device=rows.indptr.device)
        ids = torch.arange(num_columns, device=rows.indptr.device)
        block = Block(rows.indptr, rows.columns, ids, num_rows, dst_positions=nowhere)
        return self.sums.aggregate(block, weight.t().contiguous(), rows.values.to(weight.dtype).unsqueeze(1), None)
