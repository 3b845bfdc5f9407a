"""Which negatives a link is trained against: from options to pairs of vertices, by the kernel that draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gnnexp.errors import Problem
from gnnexp.graph.block import BatchKey
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers.negatives import Replaced, draw_negatives
from gnnexp.tasks.known import KnownLinks

Sampling = Literal["uniform", "per_source", "in_batch"]
Corrupt = Literal["tail", "head", "both"]
_REPLACED = {"tail": Replaced.TAIL, "head": Replaced.HEAD, "both": Replaced.EITHER}


@dataclass(frozen=True, eq=False)
class Negatives:
    """Draws negatives of training links.

    Attributes:
        count: k, of each link.
        sampling: both ends drawn from all vertices (`uniform`), one of them (`per_source`), or one of them from the
            same ends of the other links of the global batch (`in_batch`; the only link of a batch: from all vertices).
        corrupt: which one; `both`: by a coin per negative.
        avoid: whether a negative that is a training link is drawn again, up to 16 times. Of a pair whose kept end is
            linked to a share q of what is drawn from, q^16 remain links: 1e-7 for a vertex linked to a third of all.
    """

    count: int = 1
    sampling: Sampling = "uniform"
    corrupt: Corrupt = "tail"
    avoid: bool = True

    def problems(self) -> list[Problem]:
        """What is wrong with the options."""
        wrong = []
        if self.count < 1:
            wrong.append(Problem("task.negatives", self.count, "must be at least 1", "task.negatives=1"))
        for name, value, allowed in (("sampling", self.sampling, get_args(Sampling)),
                                     ("corrupt", self.corrupt, get_args(Corrupt))):
            if value not in allowed:
                wrong.append(Problem(f"task.{name}", value, f"must be one of: {', '.join(allowed)}",
                                     f"task.{name}={allowed[0]}"))
        if self.sampling == "uniform" and self.corrupt in ("head", "both"):
            wrong.append(Problem("task.corrupt", self.corrupt, "task.sampling=uniform draws both ends",
                                 "set task.sampling=per_source, or task.corrupt=tail"))
        return wrong

    def draw(
        self, links: np.ndarray, chosen: np.ndarray, batch: np.ndarray, num_nodes: int, known: KnownLinks, key: BatchKey
    ) -> tuple[np.ndarray, np.ndarray]:
        """Heads and tails `[t * k]` of the negatives, the first link's first: a pure function of key, batch and link.

        Args:
            links: `[n, 2 | 3]` int64, all training links.
            chosen: `[t]` numbers of those to draw for.
            batch: `[T]` those of the global batch.
            num_nodes: V.
            known: training links by head, if they are avoided; else none.
            key: of the batch.
        """
        others = np.sort(batch) if self.sampling == "in_batch" else np.empty(0, np.int64)
        drawn = np.empty((2, chosen.size * self.count), np.int64)
        draw_negatives(
            links, chosen, others, num_nodes, self.count,
            int(Replaced.BOTH if self.sampling == "uniform" else _REPLACED[self.corrupt]),
            known.sieve, known.indptr, known.ends, known.types,
            np.uint64(stream(key.seed, Purpose.NEGATIVE, key.epoch, key.step)), drawn,
        )
        return drawn[0], drawn[1]
