"""Attention of all edges on every rank, once per epoch, for the propagations of a decoupled model (NeutronTP, 4.1.1).

A vertex has 2K columns of keys, from its last dense update. There are three ways (`key_exchange.values_sent`):

- `shared` (data parallel): all ranks get all keys. Each rank weighs the in-edges of a range of destinations, and shares
  the weights. Ranges have about equally many edges.
- `halo`: the same, but a rank gets only the keys that its edges read.
- `replicated`: all ranks get all keys, and every rank weighs all edges. This computes more, and sends no weights.

All ways are trained: gradients go back to the rank that weighed an edge, and then to the owners of the keys.
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
from gnnexp.models.decoupled import Keys, contract_layer, propagation_weight
from gnnexp.paradigms.columns.key_exchange import AllKeys, AttentionSizes, KeyHalo, ReadKeys, Way, least_sent
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.in_chunks import in_chunks
from gnnexp.placement.chunks import Chunk, cut, rank_bounds

AttentionWork = Literal["shared", "halo", "replicated", "cheapest"]


class EdgeAttention:
    """Computes the weights of all edges on a rank.

    Args:
        job: job of the rank.
        whole: block of the whole graph, on the host.
        chunks: chunks of `whole`.
        lengths: for every rank, number of vertices whose dense updates it finishes.
        places: `[V]` place of each vertex in the list of all ranks' vertices, in order of ranks; None if it is the id.
        work: `shared`, `halo` or `replicated`; or `cheapest`: the one that sends the fewest values.
        frozen: whether keys take no gradient.

    Attributes:
        chunks: chunks of the edges that this rank weighs.
        way: how the work is done.
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
        self._job, self._frozen = job, frozen
        self._places = None if places is None else places.to(job.device)
        self.chunks, self._edges, self._at_once = chunks, None, len(chunks) == 1
        self._keys: AllKeys | KeyHalo = AllKeys(lengths, job.comm)
        bounds = rank_bounds(whole, job.comm.size)
        read = ReadKeys.of(whole, bounds, lengths, places) if work in ("halo", "cheapest") else None
        self.way: Way = _cheapest_way(job, whole, read, frozen) if work == "cheapest" else work
        if job.comm.size == 1 or self.way == "replicated":
            return
        starts = whole.indptr[torch.tensor(bounds)].tolist()
        self._edges = [stop - start for start, stop in pairwise(starts)]
        self.chunks = _between(whole, chunks, bounds[job.comm.rank], bounds[job.comm.rank + 1])
        if self.way == "halo":
            assert read is not None
            self._keys = KeyHalo(read, job.comm, job.device)

    def weights(self, keys: Keys, key: BatchKey) -> Tensor:
        """`[E, 1]` weights of all edges, from the keys of this rank's vertices, `[n, K]` each."""
        sent = (keys[0].detach(), keys[1].detach()) if self._frozen else keys
        everyone = self._keys.bring(sent)
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


def _cheapest_way(job: Job, whole: Block, read: ReadKeys | None, frozen: bool) -> Way:
    assert read is not None
    heads = contract_layer(job.model, job.model.num_layers - 1).num_weights
    return least_sent(
        AttentionSizes(job.comm.size, whole.num_dst, whole.num_edges, heads, read.num_foreign, trained=not frozen)
    )


def _between(whole: Block, chunks: Sequence[Chunk], first: int, last: int) -> tuple[Chunk, ...]:
    """Chunks of the destinations from `first` to `last`, none larger than `chunks`. Their edges count from 0."""
    inner = [chunk.first for chunk in chunks if first < chunk.first < last]
    base = int(whole.indptr[first])
    return tuple(
        replace(chunk, edges=slice(chunk.edges.start - base, chunk.edges.stop - base))
        for chunk in (cut(whole, [first, *inner, last]) if last > first else ())
    )
