"""Deduplicated communication: rows of a batch to the device, and gradients back (HongTu, Algorithms 2 and 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.kernels.rows.gather import add_rows, gather_rows, place_rows
from gnnexp.measure.ledger import Tag
from gnnexp.placement.transitions import Move
from gnnexp.tiers.tier import ArrivingRows, DeviceTier


class NeighbourBuffer:
    """Moves rows and gradients of one rank's batches.

    With `inter`, only the owner of a row copies it from host memory to its device; then devices exchange rows. Without
    `inter`, hosts exchange rows, and every rank copies all rows that it reads to its device.

    Args:
        tier: device tier of the rank.
        comm: communicator of all ranks for device tensors.
        host_comm: communicator of all ranks for host tensors.
        inter: option `paradigm.dedup.inter`.
    """

    def __init__(self, tier: DeviceTier, comm: Communicator, host_comm: Communicator, inter: bool) -> None:
        self._tier, self._comm, self._host_comm, self._inter = tier, comm, host_comm, inter

    def fetch(self, move: Move, host: Tensor) -> ArrivingRows:
        """Start to copy the own rows of the next batch to the device."""
        return self._tier.fetch(host, move.own)

    def load(self, move: Move, arriving: ArrivingRows, buffer: Tensor, host: Tensor, tag: Tag, counted: str) -> None:
        """Algorithm 2: put the batch's rows in `buffer` `[capacity, d]`. Rows of the batch before may stay there.

        Args:
            move: movement of the batch's rows.
            arriving: result of `fetch` for this batch.
            buffer: rows in the device tier.
            host: `[n, d]` rows of the own vertices.
            tag: tag of the exchange.
            counted: `forward` or `backward`, part of the counters' names.
        """
        rows = f"tier/h2d_rows_{counted}"
        self._tier.place(arriving, buffer, move.own_places, rows)
        if self._comm.size == 1:
            return
        if self._inter:
            came = self._comm.all_to_all(gather_rows(buffer, move.sent), move.sent_counts, move.counts, tag)
            place_rows(came, move.places, buffer)
            self._note_peer_rows(counted, move.sent, buffer)
        else:
            came = self._host_comm.all_to_all(gather_rows(host, move.sent), move.sent_counts, move.counts, tag)
            self._tier.counts["tier/socket_bytes"] += came.nbytes
            self._tier.place(self._tier.fetch(came, torch.arange(came.shape[0])), buffer, move.places, rows)

    def give_back(self, move: Move, gradients: Tensor, host: Tensor, tag: Tag) -> None:
        """Algorithm 3: send gradients home, for rows that the batch before does not hold. The host adds them up.

        Args:
            move: movement of the batch's rows.
            gradients: `[capacity, d]` in the device tier. Gradients that leave become zero.
            host: `[n, d]` gradients of the own vertices.
            tag: tag of the exchange.
        """
        if self._comm.size > 1 and self._inter:
            leaving = gather_rows(gradients, move.places)
            came = self._comm.all_to_all(leaving, move.counts, move.sent_counts, tag)
            for rows, places in _by_rank(came, move.sent, move.sent_counts):
                add_rows(gradients, places, rows)
            self._note_peer_rows("backward", move.places, gradients)
        elif self._comm.size > 1:
            leaving = self._tier.collect(gradients, move.places, _BACK)
            self._tier.counts["tier/socket_bytes"] += leaving.nbytes
            came = self._host_comm.all_to_all(leaving, move.counts, move.sent_counts, tag)
            for rows, places in _by_rank(came, move.sent, move.sent_counts):
                self._tier.accumulate(rows, host, places)
        self._tier.give_back(gradients, move.own_places, host, move.own, _BACK)
        for places in (move.own_places, move.places):
            gradients.index_fill_(0, places, 0)

    def _note_peer_rows(self, counted: str, places: Tensor, buffer: Tensor) -> None:
        self._tier.counts[f"tier/d2d_rows_{counted}"] += places.numel()
        self._tier.counts["tier/d2d_bytes"] += places.numel() * buffer.shape[1] * buffer.element_size()


_BACK = "tier/d2h_rows_gradients"


def _by_rank(rows: Tensor, places: Tensor, counts: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and their places by rank, in order: so the order of sums is fixed. The places of one rank are unique."""
    sizes = list(counts)
    return zip(torch.split_with_sizes(rows, sizes), torch.split_with_sizes(places, sizes), strict=True)
