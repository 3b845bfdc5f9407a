"""What layers ask of kernels; three interchangeable implementations (`model.kernel: numba | torch | dgl`).

All agree to rounding, forward and backward, and draw identical dropout masks (docs/rooms.md, "Randomness").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.dropout import quantised, survivor_scale


@dataclass(frozen=True)
class Drop:
    """One dropout: a probability and the key of its mask.

    Attributes:
        p: probability to drop; taken in units of 1/65536, so that 16 random bits decide.
        key: 64-bit key from `counter.stream`.
        word: on a GPU the same 64 bits, int64 without dimensions, which the next step overwrites (`masks.DropKeys`): a
            number would be baked into a captured graph. None: kernels take the number.
    """

    p: float
    key: int
    word: Tensor | None = field(default=None, compare=False)

    @property
    def threshold(self) -> int:
        """16 bits below this drop; 65536 drops all."""
        return quantised(self.p)

    @property
    def scale(self) -> float:
        """What survivors are multiplied with."""
        return survivor_scale(self.threshold)


class Backend(ABC):
    """Differentiable sparse operations on a block of E edges, S sources and D destinations.

    Attributes:
        name: as in `model.kernel`.
        reads_transpose: whether backward passes go over a block's transpose: a chunk then brings it to the device.
    """

    name: str
    reads_transpose = False

    def draw_from(self, pool: Pool) -> None:
        """Take outputs and gradients from the rank's pool, where this implementation makes them itself."""
        return

    def release(self) -> None:
        """Free memory that is kept for the next step."""
        return

    def keep_at_most(self, num_bytes: int) -> None:
        """Bound what is kept for the next step."""
        return

    @abstractmethod
    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`[D, d]`: `out[v, j]` = sum over in-edges e of v of `weight[e, column[j]] * x[src(e), j]`.

        Args:
            block: the edges.
            x: `[S, d]`.
            weight: `[E, K]`, or None for ones.
            column: `[d]` int64, weight slot of each column (equal contiguous groups are the fast case); None if K = 1.
        """

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """`[D, d]` sums of `scale[u] * x[u]`, `[S]` and `[S, d]`: constant weights that depend on the source alone."""
        return self.aggregate(block, x * scale.unsqueeze(1), None, None)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]`: the transpose of `aggregate` with constant weights `[E, 1]`, None for ones; not differentiable.

        The result has memory of its own: the caller may write into it.
        """
        x = gradient.new_zeros(block.num_src, gradient.shape[1])
        if block.num_edges == 0 or not x.numel():
            return x  # autograd would expand a single zero, which nobody can write into
        with torch.enable_grad():
            x.requires_grad_()
            summed = self.aggregate(block, x, None if weight is None else weight.detach(), None)
        return torch.autograd.grad(summed, x, gradient)[0]

    @abstractmethod
    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`[D, K, d]`: every weight column `[E, K]` applied to all of `x` `[S, d]`."""

    @abstractmethod
    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """`[E, K]` = `src_key[src(e)] + dst_key[dst(e)]`, from `[S, K]` and `[D, K]`."""

    @abstractmethod
    def edge_max(self, block: Block, score: Tensor) -> Tensor:
        """`[D, K]` largest score of each destination's edges, -inf without edges; no gradient."""

    @abstractmethod
    def edge_exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """`[E, K]` = `exp(score - peak[dst(e)])`; the peak `[D, K]` is a constant."""

    @abstractmethod
    def edge_sum(self, block: Block, weight: Tensor) -> Tensor:
        """`[D, K]` sum of `weight` `[E, K]` over each destination's edges."""

    @abstractmethod
    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`[E, K]` softmax(LeakyReLU(src_key + dst_key)) over each destination's edges, then dropout."""

    @abstractmethod
    def attention(
        self, block: Block, x: Tensor, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """GAT: `[D, K * F]` sums of `x` `[S, K * F]` with weights softmax(LeakyReLU(src_key + dst_key)) over in-edges.

        Args:
            block: the edges.
            x: projected rows, heads side by side.
            src_key: `[S, K]`.
            dst_key: `[D, K]`.
            slope: of the LeakyReLU below 0.
            drop: dropout of the weights (their sum is taken before), or None.

        Returns:
            0 for destinations without edges.
        """

    @abstractmethod
    def attention_aggregate_first(
        self, block: Block, x: Tensor, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`[D, K, d]`: as `attention`, with rows `x` `[S, d]` that all heads share."""

    @abstractmethod
    def gather(self, x: Tensor, ids: Tensor) -> Tensor:
        """`x[ids]`, rows."""

    @abstractmethod
    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """Dropout of `x` `[N, d]`, columns `first_column:first_column + d` of a matrix with `num_columns`.

        The mask is a function of (key, `ids` `[N]` original, global column, `num_columns`) alone.
        """

    @abstractmethod
    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """`dropout(relu(x))` in one pass; p may be 0."""

    @abstractmethod
    def edge_dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """Dropout of `weight` `[E, K]` by edge identity (src, dst, type, occurrence) and head: `attention`'s mask."""

    @abstractmethod
    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """`dropout` of sparse features: exactly the dense mask at the nonzeros."""

    def sparse_linear(self, rows: SparseRows, weight: Tensor) -> Tensor:
        """`[N, C]` = `rows @ weight.T`, differentiable in `weight` `[C, D]`: columns are the sources of a block."""
        num_rows, num_columns = rows.shape
        nowhere = torch.empty(0, dtype=torch.int64, device=rows.indptr.device)
        ids = torch.arange(num_columns, device=rows.indptr.device)
        block = Block(rows.indptr, rows.columns, ids, num_rows, dst_positions=nowhere)
        return self.aggregate(block, weight.t().contiguous(), rows.values.to(weight.dtype).unsqueeze(1), None)
