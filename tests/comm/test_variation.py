"""A rank sends its rows again if they have moved enough; the others' rows stay as they were, and gradients go home."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from exchanging import alone, connect, indices, local_rows, traffic
from small_graphs import sparse_rows

from gnnexp.comm.arrival import Fresh, KeptExchanges
from gnnexp.comm.broadcast import WholeParts
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo, shuffle
from gnnexp.comm.variation import Variation, Varied
from gnnexp.graph.sparse import SparseRows

EPOCHS, SIZE, BOUND = 6, 3, 0.25
# How far the rows of a rank are from those of epoch 0, as shares of their norm.
MOVES = {0: (0, 0.1, 0.2, 0.3, 0.4, 0.6), 1: (0, 0, 0, 0, 0, 0), 2: (0, 0.5, 1.0, 1.1, 1.2, 5.0)}
# Epochs in which it sends: what it compares with is what it sent last, whose norm has grown with it.
SENDS = {0: (0, 3), 1: (0,), 2: (0, 1, 2, 5)}


def _sends() -> None:
    """The table again, from the formula."""
    for rank, moves in MOVES.items():
        sent, found = None, []
        for epoch, move in enumerate(moves):
            if sent is None or (move != sent and abs(move - sent) >= BOUND * (1 + sent)):
                sent, found = move, [*found, epoch]
        assert tuple(found) == SENDS[rank], rank


def halo_of(kind: str, comm: Communicator) -> Halo:
    every = indices(comm.size)
    return WholeParts([index.num_local for index in every], comm.rank) if kind == "broadcast" else every[comm.rank]


def rows_in(epoch: int, rank: int) -> torch.Tensor:
    return local_rows(SIZE)[rank] * (1 + MOVES[rank][epoch])


def _epochs(kind: str, stop_after: int | None) -> list[tuple[tuple[int, int], int, int, tuple[int, int]]]:
    """Per epoch: rows that were sent forwards, bytes of flags, what was not sent so far, what a fetch would send."""
    comm = connect()
    halo, arrival = halo_of(kind, comm), Variation("stale", bound=BOUND)
    varied, found = arrival.at(halo), []
    for epoch in range(EPOCHS):
        if stop_after == epoch:  # as a checkpoint does
            kept = KeptExchanges(arrival, [varied], torch.device("cpu")).state_dict()
            varied = arrival.at(halo)
            KeptExchanges(arrival, [varied], torch.device("cpu")).load_state_dict(kept)
        x = rows_in(epoch, comm.rank).requires_grad_()
        varied.watch(partial(rows_in, epoch, comm.rank))
        mixed = varied.gather(x + 7, epoch, comm, "activations")  # what is sent is not what is compared
        assert isinstance(mixed, torch.Tensor)
        sent = traffic(comm)
        y = torch.rand(mixed.shape, generator=torch.Generator().manual_seed(epoch), dtype=torch.float64)
        mixed.backward(y)
        fresh = rows_in(epoch, comm.rank).requires_grad_()
        expected = shuffle(fresh, halo, comm, "features")
        assert isinstance(expected, torch.Tensor)
        expected.backward(y)
        assert x.grad is not None and fresh.grad is not None and torch.equal(x.grad, fresh.grad)
        assert torch.equal(mixed.detach(), torch.cat((x.detach() + 7, _expected(halo, comm, epoch))))
        traffic(comm)
        found.append(
            (sent.get("activations", (0, 0)), varied.skipped_bytes, halo.fetch_bytes(x.detach()), sent["sizes"])
        )
    return found


def _expected(halo: Halo, comm: Communicator, epoch: int) -> torch.Tensor:
    """Rows of the other ranks, each as of the epoch in which its owner sent last."""
    last = {rank: max(then for then in SENDS[rank] if then <= epoch) for rank in range(SIZE)}
    own = rows_in(last[comm.rank], comm.rank) + 7
    arrived = halo.fetch(own, comm, "features")
    assert isinstance(arrived, torch.Tensor)
    return arrived


@pytest.mark.parametrize("kind", ["halo", "broadcast"])
@pytest.mark.parametrize("stop_after", [None, 2])
def test_only_ranks_whose_rows_moved_send(ranks, kind, stop_after):
    _sends()
    for rank, found in enumerate(ranks(SIZE).run(_epochs, kind, stop_after)):
        skipped = 0
        for epoch, ((num_bytes, rounds), so_far, whole, flags) in enumerate(found):
            senders = sum(epoch in SENDS[other] for other in range(SIZE))
            assert num_bytes == (whole if epoch in SENDS[rank] else 0)
            assert rounds == (senders if kind == "broadcast" else min(senders, 1)), "no round if nobody sends"
            assert flags == (8 * (SIZE - 1), 1)
            skipped = (0 if stop_after == epoch else skipped) + whole - num_bytes
            assert so_far == skipped


def _constant(kind: str, sparse: bool) -> list[int]:
    """Bytes of rows that are never watched, in every epoch."""
    comm = connect()
    halo, found = halo_of(kind, comm), []
    varied = Variation("stale", bound=BOUND).at(halo)
    dense = local_rows(SIZE)[comm.rank]
    local = sparse_rows(dense) if sparse else dense
    expected = shuffle(local, halo, comm, "features")
    traffic(comm)
    for epoch in range(2):
        mixed = varied.gather(local, epoch, comm, "features")
        found.append(traffic(comm).get("features", (0, 0))[0])
        rows = [it.to_dense() if isinstance(it, SparseRows) else it for it in (mixed, expected)]
        assert torch.equal(*rows)
        kept = varied.state()
        varied = Variation("stale", bound=BOUND).at(halo)
        varied.restore(kept, torch.device("cpu"))
    return found


@pytest.mark.parametrize(("kind", "sparse"), [("halo", True), ("broadcast", True), ("broadcast", False)])
def test_constant_rows_are_sent_once(ranks, kind, sparse):
    for first, second in ranks(SIZE).run(_constant, kind, sparse):
        assert first > 0 and second == 0


def test_bound_0_is_fresh_and_one_rank_exchanges_nothing():
    comm = alone()
    halo = WholeParts([3], 0)
    assert type(Variation("stale").at(halo)) is Fresh and Variation("stale").is_fresh
    assert not Variation("stale").approximates and "cannot be counted" in Variation("stale", bound=0.1).approximates
    varied = Variation("stale", bound=0.1).at(halo)
    assert isinstance(varied, Varied)
    rows = torch.rand(3, 2)
    assert varied.gather(rows, 0, comm, "features") is rows
