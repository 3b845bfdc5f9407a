"""Known links, and negatives of training links. Negatives must not be known; filtered ranks ignore known links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.options import wrong_options
from gnnexp.errors import Problem
from gnnexp.graph.block import BatchKey
from gnnexp.graph.build import build_graph
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.graph.links import make_sieve
from gnnexp.kernels.samplers.negatives import Replaced, draw_negatives


@dataclass(frozen=True, eq=False)
class KnownLinks:
    """Links in CSR form by one of their ends. Each link occurs once, and the other ends are ascending.

    Links without relations have no direction: they are listed under both ends.

    Attributes:
        indptr: `[V + 1]` int64 bounds of each vertex's links; empty if no links were given.
        ends: `[m]` the other ends.
        types: `[m]` int32 relations; empty if links have no relations.
    """

    indptr: np.ndarray
    ends: np.ndarray
    types: np.ndarray

    @cached_property
    def sieve(self) -> np.ndarray:
        """A filter that recognises most pairs that are not links with one read; empty if no links were given."""
        if not self.indptr.size:
            return np.empty(0, np.uint64)
        return make_sieve(self.indptr, self.ends, self.types)  # type: ignore[no-any-return]

    @staticmethod
    def of(links: Sequence[Tensor], num_nodes: int, *, by_tail: bool = False) -> KnownLinks:
        """Index lists of links, each `[n, 2 | 3]`, by head, or by tail if `by_tail` is true."""
        if not links:
            return KnownLinks(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        joined = torch.cat([*links]).numpy()
        heads, tails = joined[:, 0], joined[:, -1]
        typed = joined.shape[1] == 3
        arrays = build_graph(
            heads if by_tail else tails,
            tails if by_tail else heads,
            num_nodes,
            types=joined[:, 1] if typed else None,
            symmetrize=not typed,
            key="links",
        )
        kinds = np.empty(0, np.int32) if arrays.types is None else arrays.types.numpy()
        return KnownLinks(arrays.indptr.numpy(), arrays.indices.numpy(), kinds)


Sampling = Literal["uniform", "per_source", "in_batch"]
Corrupt = Literal["tail", "head", "both"]
_REPLACED = {"tail": Replaced.TAIL, "head": Replaced.HEAD, "both": Replaced.EITHER}


@dataclass(frozen=True, eq=False)
class Negatives:
    """Draws negatives of training links.

    Attributes:
        count: k, number of negatives of each link.
        sampling: `uniform` draws both ends from all vertices. With `per_source`, one end is drawn from all vertices.
            With `in_batch`, one end is drawn from the same ends of other links in the global batch, or from all
            vertices if the batch has a single link.
        corrupt: which end `per_source` and `in_batch` draw; `both` decides at random for each negative.
        avoid: whether a negative that is a training link is drawn again, in up to 16 tries. If the kept end is linked
            to a share q of the candidates, a share q^16 of its negatives remain links: 2e-8 for q = 1/3.
    """

    count: int = 1
    sampling: Sampling = "uniform"
    corrupt: Corrupt = "tail"
    avoid: bool = True

    def problems(self) -> list[Problem]:
        """Problems of the options."""
        wrong = wrong_options("task", (self.count >= 1, "negatives", self.count, "must be at least 1", 1))
        if self.sampling == "uniform" and self.corrupt in ("head", "both"):
            wrong.append(
                Problem(
                    "task.corrupt",
                    self.corrupt,
                    "task.sampling=uniform draws both ends",
                    "set task.sampling=per_source, or task.corrupt=tail",
                )
            )
        return wrong

    def draw(
        self, links: np.ndarray, chosen: np.ndarray, batch: np.ndarray, num_nodes: int, known: KnownLinks, key: BatchKey
    ) -> tuple[np.ndarray, np.ndarray]:
        """Heads and tails `[t * k]` of negatives, in the order of `chosen`. They depend on key, batch and link only.

        Args:
            links: `[n, 2 | 3]` int64, all training links.
            chosen: `[t]` indices of the links that get negatives.
            batch: `[T]` indices of the links in the global batch.
            num_nodes: V, number of vertices.
            known: training links by head if they are avoided, else empty.
            key: key of the batch.
        """
        others = np.sort(batch) if self.sampling == "in_batch" else np.empty(0, np.int64)
        drawn = np.empty((2, chosen.size * self.count), np.int64)
        draw_negatives(
            links,
            chosen,
            others,
            num_nodes,
            self.count,
            int(Replaced.BOTH if self.sampling == "uniform" else _REPLACED[self.corrupt]),
            known.sieve,
            known.indptr,
            known.ends,
            known.types,
            np.uint64(stream(key.seed, Purpose.NEGATIVE, key.epoch, key.step)),
            drawn,
        )
        return drawn[0], drawn[1]
