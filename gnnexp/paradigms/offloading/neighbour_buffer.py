"""Deduplicated communication: a batch's rows into a rank's device, gradients out of it (HongTu, Algorithms 2, 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import add_to_rows, take_rows
from gnnexp.kernels.rows.gather import place_rows
from gnnexp.measure.ledger import Tag
from gnnexp.placement.transitions import Move
from gnnexp.tiers.tier import Arriving, DeviceTier


class NeighbourBuffer:
    """Moves rows of one rank's batches.

    With `inter` a row crosses from host memory at its home only and goes on from device to device; without it hosts
    exchange rows, and every rank brings all it reads across by itself.

    Args:
        tier: of the rank.
        comm: all ranks, tensors of the device.
        host_comm: all ranks, host tensors.
        inter: `paradigm.dedup.inter`.
    """

    def __init__(self, tier: DeviceTier, comm: Communicator, host_comm: Communicator, inter: bool) -> None:
        self._tier, self._comm, self._host_comm, self._inter = tier, comm, host_comm, inter

    def fetch(self, move: Move, host: Tensor) -> Arriving:
        """Begin to bring the own rows of a batch to come."""
        return self._tier.fetch(host, move.own)

    def load(self, move: Move, arriving: Arriving, buffer: Tensor, host: Tensor, tag: Tag, counted: str) -> None:
        """Algorithm 2: the batch's rows to their places in `buffer` `[capacity, d]`; what stays is there already.

        Args:
            move: of the batch.
            arriving: `fetch` of it.
            buffer: in the device tier.
            host: `[n, d]` rows of the own vertices.
            tag: what the rows are.
            counted: forward or backward, in names of counters.
        """
        rows = f"tier/h2d_rows_{counted}"
        self._tier.place(arriving, buffer, move.own_places, rows)
        if self._comm.size == 1:
            return
        if self._inter:
            came = self._comm.all_to_all(take_rows(buffer, move.sent), move.sent_counts, move.counts, tag)
            _put_rows(buffer, move.places, came)
            self._note_peer_rows(counted, move.sent, buffer)
        else:
            came = self._host_comm.all_to_all(take_rows(host, move.sent), move.sent_counts, move.counts, tag)
            self._tier.place(self._tier.fetch(came, torch.arange(came.shape[0])), buffer, move.places, rows)

    def give_back(self, move: Move, gradients: Tensor, host: Tensor, tag: Tag) -> None:
        """Algorithm 3: gradients of what the batch before does not hold go home and are added up in host memory.

        Args:
            move: of the batch.
            gradients: `[capacity, d]` in the device tier; those that leave are zero afterwards.
            host: `[n, d]` gradients of the own vertices.
            tag: what for.
        """
        if self._comm.size > 1 and self._inter:
            leaving = take_rows(gradients, move.places)
            came = self._comm.all_to_all(leaving, move.counts, move.sent_counts, tag)
            _add_by_rank(gradients, move.sent, came, move.sent_counts)
            self._note_peer_rows("backward", move.places, gradients)
        elif self._comm.size > 1:
            leaving = self._tier.collect(gradients, move.places, _BACK)
            came = self._host_comm.all_to_all(leaving, move.counts, move.sent_counts, tag)
            start = 0
            for count in move.sent_counts:
                part = slice(start, start + count)
                self._tier.accumulate(came[part], host, move.sent[part])
                start += count
        own = self._tier.collect(gradients, move.own_places, _BACK)
        self._tier.accumulate(own, host, move.own)
        for places in (move.own_places, move.places):
            gradients.index_fill_(0, places, 0)

    def _note_peer_rows(self, counted: str, places: Tensor, buffer: Tensor) -> None:
        self._tier.counts[f"tier/d2d_rows_{counted}"] += places.numel()
        self._tier.counts["tier/d2d_bytes"] += places.numel() * buffer.shape[1] * buffer.element_size()


_BACK = "tier/d2h_rows_gradients"


def _put_rows(buffer: Tensor, places: Tensor, rows: Tensor) -> None:
    """`buffer[places] = rows`."""
    if buffer.is_cuda:
        buffer.index_copy_(0, places, rows)
    else:
        place_rows(rows, places, buffer)


def _add_by_rank(buffer: Tensor, places: Tensor, rows: Tensor, counts: Sequence[int]) -> None:
    """Rank by rank: the order of sums is fixed, and places are unique inside."""
    start = 0
    for count in counts:
        add_to_rows(buffer, places[start : start + count], rows[start : start + count])
        start += count
