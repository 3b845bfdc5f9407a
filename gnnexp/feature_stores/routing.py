"""Which rows are asked for where, and putting the answers back into the order of the question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.feature_stores.rows import in_places, rows_nbytes, take_rows
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.gather import move_rows, place_rows
from gnnexp.kernels.samplers.split import group_by_owner


@dataclass(frozen=True, eq=False)
class Routes:
    """Where the rows of one read come from.

    Attributes:
        own: `[a]` ids whose rows are here.
        own_places: `[a]` int64 where they belong in the answer.
        foreign: `[b]` ids whose rows are elsewhere, those of rank 0 first.
        foreign_places: `[b]` int64.
        sent: ids for each rank, 0 for this one.
    """

    own: Tensor
    own_places: Tensor
    foreign: Tensor
    foreign_places: Tensor
    sent: list[int]


def route(ids: Tensor, home: np.ndarray, rank: int, size: int) -> Routes:
    """Sort `ids` `[n]` by the rank that `home` `[V]` names for each."""
    asked = ids.contiguous().numpy()
    counts, grouped = np.zeros(size, np.int64), np.empty_like(asked)
    places = np.empty(asked.size, np.int32)
    group_by_owner(asked, home, counts, grouped, places)
    back = np.empty(asked.size, np.int64)
    back[places] = np.arange(asked.size)
    own = slice(int(counts[:rank].sum()), int(counts[: rank + 1].sum()))
    return Routes(
        torch.from_numpy(grouped[own]), torch.from_numpy(back[own]), torch.from_numpy(np.delete(grouped, own)),
        torch.from_numpy(np.delete(back, own)), [0 if part == rank else int(n) for part, n in enumerate(counts)],
    )


def together(held: Rows, own: Tensor, foreign: Rows, routes: Routes, pool: Pool) -> tuple[Rows, int]:
    """Rows in the order in which they were asked for, and the bytes of those that are ours.

    Args:
        held: this rank's rows, in host memory.
        own: `[a]` which of them.
        foreign: `[b]` rows from other ranks.
        routes: where they belong.
        pool: where the result is put, if it is dense.
    """
    if isinstance(held, SparseRows):
        rows = take_rows(held, own)
        return in_places([(rows, routes.own_places), (foreign, routes.foreign_places)]), rows_nbytes(rows)
    assert isinstance(foreign, Tensor)
    shape = own.numel() + foreign.shape[0], held.shape[1]
    out = torch.from_numpy(pool.empty(shape, held.numpy().dtype))
    move_rows(held, own, routes.own_places, out)
    place_rows(foreign, routes.foreign_places, out)
    return out, own.numel() * held.shape[1] * held.element_size()
