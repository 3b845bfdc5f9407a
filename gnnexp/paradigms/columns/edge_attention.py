"""Attention of all edges on every rank, once per epoch, for the propagations of a decoupled model (NeutronTP, 4.1.1).

    keys          2K columns of every vertex, from its last dense update, go to all ranks
    weights       each rank weighs the in-edges of a range of destinations, ranges with about equally many edges
                  (data parallel), and shares them; or every rank weighs all edges, which sends less and computes more

Both ways are trained: gradients go back to the rank that weighed, and on to the owners of the keys.
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
from gnnexp.job import Job
from gnnexp.models.decoupled import Keys, propagation_weight
from gnnexp.paradigms.chunks.in_chunks import in_chunks
from gnnexp.placement.chunks import Chunk, cut, rank_bounds

AttentionWork = Literal["shared", "replicated"]


class EdgeAttention:
    """How a rank comes to the weights of all edges.

    Args:
        job: of the rank.
        whole: block of the whole graph, on the host.
        chunks: of it.
        lengths: of every rank, how many vertices' dense updates it finishes.
        places: `[V]` where a vertex is among the ranks' vertices one after another; None where that is its id.
        work: `shared` or `replicated`.
        frozen: whether keys take no gradient.
    """

    def __init__(
        self, job: Job, whole: Block, chunks: Sequence[Chunk], lengths: Sequence[int], places: Tensor | None,
        work: AttentionWork, frozen: bool,
    ) -> None:
        self._job, self._lengths, self._frozen = job, lengths, frozen
        self._places = None if places is None else places.to(job.device)
        self._chunks, self._edges, self._at_once = chunks, None, len(chunks) == 1
        if work == "shared" and job.comm.size > 1:
            bounds = rank_bounds(whole, job.comm.size)
            starts = whole.indptr[torch.tensor(bounds)].tolist()
            self._edges = [stop - start for start, stop in pairwise(starts)]
            self._chunks = _between(whole, chunks, bounds[job.comm.rank], bounds[job.comm.rank + 1])

    def weights(self, keys: Keys, key: BatchKey) -> Tensor:
        """`[E, 1]` of all edges, from the keys of this rank's vertices, `[n, K]` each."""
        both = torch.cat(keys, 1)
        sent = both.detach() if self._frozen else both
        everyone = gather_all_rows(sent, self._lengths, self._job.comm, "activations")
        if self._places is not None:
            everyone = everyone[self._places]
        own = self._weigh(everyone, keys[0].shape[1], key)
        return own if self._edges is None else gather_all_rows(own, self._edges, self._job.comm, "activations")

    def _weigh(self, everyone: Tensor, heads: int, key: BatchKey) -> Tensor:
        """Of the edges whose weights are this rank's."""

        def weigh(chunk: Chunk, rows: Tensor, _: Tensor | None) -> Tensor:
            source, destination = rows[:, :heads].contiguous(), rows[: chunk.block.num_dst, heads:].contiguous()
            weight = propagation_weight(self._job.model, chunk.block, (source, destination), key)
            assert weight is not None, "a model with keys weighs by them"
            return weight

        if not self._chunks:
            return everyone[:0, :1]  # takes part in the exchange, forwards and backwards
        if self._at_once:
            chunk = self._chunks[0]
            rows = everyone if chunk.rows is None else everyone[chunk.rows.to(everyone.device)]
            return weigh(replace(chunk, block=chunk.block.to(everyone.device)), rows, None)
        return in_chunks(weigh, everyone, None, self._chunks, self._job.tier, width=1, per_edge=True)


def _between(whole: Block, chunks: Sequence[Chunk], first: int, last: int) -> tuple[Chunk, ...]:
    """Chunks of the destinations `first` to `last`, none larger than the given ones; edges counted from theirs."""
    inner = [chunk.first for chunk in chunks if first < chunk.first < last]
    base = int(whole.indptr[first])
    return tuple(
        replace(chunk, edges=slice(chunk.edges.start - base, chunk.edges.stop - base))
        for chunk in (cut(whole, [first, *inner, last]) if last > first else ())
    )
