"""Attention of all edges on every rank, once per epoch, for the propagations of a decoupled model (NeutronTP, 4.1.1).

All ranks get the keys: 2K columns of every vertex, from its last dense update. Then there are two ways:

- `shared` (data parallel): each rank weighs the in-edges of a range of destinations, and shares the weights. Ranges
  have about equally many edges.
- `replicated`: every rank weighs all edges. This sends less and computes more.

Both ways are trained: gradients go back to the rank that weighed an edge, and then to the owners of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from gnnexp.comm.tensor_split import gather_all_rows
from gnnexp.graph.block import BatchKey, Block
from gnnexp.models.decoupled import Keys, propagation_weight
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.in_chunks import in_chunks
from gnnexp.placement.chunks import Chunk, cut, rank_bounds

AttentionWork = Literal["shared", "replicated"]


class EdgeAttention:
    """Computes the weights of all edges on a rank.

    Args:
        job: job of the rank.
        whole: block of the whole graph, on the host.
        chunks: chunks of `whole`.
        lengths: for every rank, number of vertices whose dense updates it finishes.
        places: `[V]` place of each vertex in the list of all ranks' vertices, in order of ranks; None if it is the id.
        work: `shared` or `replicated`.
        frozen: whether keys take no gradient.

    Attributes:
        chunks: chunks of the edges that this rank weighs.
    """

    def __init__(
        self,
        job: Job,
        whole: Block,
        chunks: Sequence[Chunk],
        lengths: Sequence[int],
        places: Tensor | None,
        work: AttentionWork,
        frozen: bool,
    ) -> None:
        self._job, self._lengths, self._frozen = job, lengths, frozen
        self._places = None if places is None else places.to(job.device)
        self.chunks, self._edges, self._at_once = chunks, None, len(chunks) == 1
        if work == "shared" and job.comm.size > 1:
            bounds = rank_bounds(whole, job.comm.size)
            starts = whole.indptr[torch.tensor(bounds)].tolist()
            self._edges = [stop - start for start, stop in pairwise(starts)]
            self.chunks = _between(whole, chunks, bounds[job.comm.rank], bounds[job.comm.rank + 1])

    def weights(self, keys: Keys, key: BatchKey) -> Tensor:
        """`[E, 1]` weights of all edges, from the keys of this rank's vertices, `[n, K]` each."""
        both = torch.cat(keys, 1)
        sent = both.detach() if self._frozen else both
        everyone = gather_all_rows(sent, self._lengths, self._job.comm, "activations")
        if self._places is not None:
            everyone = everyone[self._places]
        own = self._weigh(everyone, keys[0].shape[1], key)
        return own if self._edges is None else gather_all_rows(own, self._edges, self._job.comm, "activations")

    def _weigh(self, everyone: Tensor, heads: int, key: BatchKey) -> Tensor:
        """`[e, 1]` weights of the edges that this rank weighs."""

        def weigh(chunk: Chunk, rows: Tensor, _: Tensor | None) -> Tensor:
            source, destination = rows[:, :heads].contiguous(), rows[: chunk.block.num_dst, heads:].contiguous()
            weight = propagation_weight(self._job.model, chunk.block, (source, destination), key)
            assert weight is not None, "a model with keys weighs by them"
            return weight

        if not self.chunks:
            return everyone[:0, :1]  # still takes part in the exchange, forward and backward
        if self._at_once:
            chunk = self.chunks[0]
            rows = everyone if chunk.rows is None else everyone[chunk.rows.to(everyone.device)]
            return weigh(replace(chunk, block=chunk.block.to(everyone.device)), rows, None)
        return in_chunks(weigh, everyone, None, self.chunks, self._job.tier, width=1, per_edge=True)


def _between(whole: Block, chunks: Sequence[Chunk], first: int, last: int) -> tuple[Chunk, ...]:
    """Chunks of the destinations from `first` to `last`, none larger than `chunks`. Their edges count from 0."""
    inner = [chunk.first for chunk in chunks if first < chunk.first < last]
    base = int(whole.indptr[first])
    return tuple(
        replace(chunk, edges=slice(chunk.edges.start - base, chunk.edges.stop - base))
        for chunk in (cut(whole, [first, *inner, last]) if last > first else ())
    )
