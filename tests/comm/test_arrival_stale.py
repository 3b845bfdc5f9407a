"""Old rows and sums: fetched when they are due, gradients home in every epoch, what was not sent is counted."""

from __future__ import annotations

import pytest
import torch
from exchanging import alone, connect, indices, local_rows, traffic
from small_graphs import sparse_rows

from gnnexp.comm.arrival import Arrival, Fresh, KeptExchanges, Stale
from gnnexp.comm.broadcast import WholeParts
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo, reduce_home, shuffle
from gnnexp.graph.sparse import SparseRows

EPOCHS, SIZE = 6, 3


def halo_of(kind: str, comm: Communicator) -> Halo:
    every = indices(comm.size)
    return WholeParts([index.num_local for index in every], comm.rank) if kind == "broadcast" else every[comm.rank]


def rows_in(epoch: int, rank: int) -> torch.Tensor:
    """Other rows in every epoch."""
    return local_rows(SIZE)[rank] + epoch


def _epochs(kind: str, bound: int, stop_after: int | None) -> list[tuple[tuple[int, int], tuple[int, int], int, int]]:
    """Per epoch: what was sent forwards, what backwards, what a fetch would have sent, what was not sent so far."""
    comm = connect()
    halo = halo_of(kind, comm)
    arrival = Arrival("stale", bound)
    stale, found = arrival.at(halo), []
    for epoch in range(EPOCHS):
        if stop_after == epoch:  # as a checkpoint does
            kept = KeptExchanges(arrival, [stale], torch.device("cpu")).state_dict()
            stale = arrival.at(halo)
            KeptExchanges(arrival, [stale], torch.device("cpu")).load_state_dict(kept)
        x = rows_in(epoch, comm.rank).requires_grad_()
        mixed = stale.gather(x, epoch, comm, "activations")
        assert isinstance(mixed, torch.Tensor)
        forwards = traffic(comm).get("activations", (0, 0))
        y = torch.rand(mixed.shape, generator=torch.Generator().manual_seed(epoch), dtype=torch.float64)
        mixed.backward(y)
        backwards = traffic(comm)["activations"]
        fresh = rows_in(epoch, comm.rank).requires_grad_()
        expected = shuffle(fresh, halo, comm, "features")
        assert isinstance(expected, torch.Tensor)
        expected.backward(y)
        assert x.grad is not None and fresh.grad is not None and torch.equal(x.grad, fresh.grad)
        due = epoch - epoch % (bound + 1)
        old = shuffle(rows_in(due, comm.rank), halo, comm, "features")
        assert isinstance(old, torch.Tensor)
        assert torch.equal(mixed.detach(), torch.cat((x.detach(), old[halo.num_local :])))
        assert bound or type(stale) is Fresh, "nothing is kept that is never used again"
        traffic(comm)
        found.append((forwards, backwards, halo.fetch_bytes(x.detach()), stale.skipped_bytes))
    return found


@pytest.mark.parametrize("kind", ["halo", "broadcast"])
@pytest.mark.parametrize(("bound", "stop_after"), [(0, None), (1, None), (2, None), (2, 4)])
def test_rows_are_at_most_as_old_as_the_bound_and_gradients_are_never(ranks, kind, bound, stop_after):
    rounds = SIZE if kind == "broadcast" else 1
    for rank, found in enumerate(ranks(SIZE).run(_epochs, kind, bound, stop_after)):
        foreign = (
            sum(indices(SIZE)[rank].received)
            if kind == "halo"
            else sum(index.num_local for other, index in enumerate(indices(SIZE)) if other != rank)
        )
        skipped = 0
        for epoch, (forwards, backwards, one_fetch, so_far) in enumerate(found):
            fresh = epoch % (bound + 1) == 0
            assert forwards == ((one_fetch, rounds) if fresh else (0, 0))
            assert backwards == (foreign * 3 * 8, 1)
            skipped = (0 if epoch == stop_after else skipped) + (0 if fresh else one_fetch)
            assert so_far == skipped


def sparse_in(epoch: int, rank: int) -> SparseRows:
    """Other entries in every epoch, as dropout leaves them."""
    return sparse_rows(local_rows(SIZE)[rank].roll(epoch, 0))


def _sparse(kind: str, bound: int) -> list[tuple[int, int]]:
    """Per epoch: bytes sent, and bytes that a fetch would send."""
    comm, found, before = connect(), [], 0
    halo = halo_of(kind, comm)
    stale = Arrival("stale", bound).at(halo)
    for epoch in range(4):
        local = sparse_in(epoch, comm.rank)
        mixed = stale.gather(local, epoch, comm, "features")
        sent = traffic(comm).get("features", (0, 0))[0]
        old = shuffle(sparse_in(epoch - epoch % (bound + 1), comm.rank), halo, comm, "features")
        assert isinstance(mixed, SparseRows) and isinstance(old, SparseRows)
        expected = torch.cat((local.to_dense(), old.to_dense()[halo.num_local :]))
        assert torch.equal(mixed.to_dense(), expected)
        assert stale.skipped_bytes - before == (0 if sent else halo.fetch_bytes(local))
        before = stale.skipped_bytes
        traffic(comm)
        found.append((sent, halo.fetch_bytes(local)))
    return found


@pytest.mark.parametrize("kind", ["halo", "broadcast"])
@pytest.mark.parametrize("bound", [0, 1])
def test_sparse_rows_grow_old_too(ranks, kind, bound):
    for found in ranks(SIZE).run(_sparse, kind, bound):
        assert [sent for sent, _ in found] == [
            fetch if epoch % (bound + 1) == 0 else 0 for epoch, (_, fetch) in enumerate(found)
        ]
        assert all(fetch for _, fetch in found)


def test_a_single_rank_has_everything():
    comm, rows = alone(), torch.rand(4, 2)
    stale = Stale(WholeParts([4], 0), 3)
    assert all(stale.gather(rows, epoch, comm, "features") is rows for epoch in range(3))
    assert stale.skipped_bytes == 0 and traffic(comm) == {}


def whole_rows_in(epoch: int, rank: int) -> torch.Tensor:
    """`[num_local + F, 3]`, other ones in every epoch."""
    index = indices(SIZE)[rank]
    generator = torch.Generator().manual_seed(1000 * epoch + rank)
    return torch.rand((index.num_local + index.num_foreign, 3), generator=generator, dtype=torch.float64)


def _sums(bound: int) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """Per epoch: what was sent forwards, what backwards, and what was not sent so far."""
    comm, found = connect(), []
    index = indices(comm.size)[comm.rank]
    stale = Arrival("stale", bound).at(index)
    for epoch in range(EPOCHS):
        rows = whole_rows_in(epoch, comm.rank).requires_grad_()
        home = stale.reduce(rows, epoch, comm, "activations")
        forwards = traffic(comm).get("activations", (0, 0))
        y = rows_in(epoch, comm.rank)
        home.backward(y)
        backwards = traffic(comm)["activations"]
        then = whole_rows_in(epoch - epoch % (bound + 1), comm.rank)
        others = reduce_home(then, index, comm, "features") - then[: index.num_local]
        expected = shuffle(y, index, comm, "features")
        assert torch.allclose(home.detach(), rows.detach()[: index.num_local] + others, rtol=0, atol=1e-14)
        assert rows.grad is not None and torch.equal(rows.grad, expected)
        traffic(comm)
        found.append((forwards, backwards, stale.skipped_bytes))
    return found


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_sums_are_at_most_as_old_as_the_bound_and_gradients_are_never(ranks, bound):
    for index, found in zip(indices(SIZE), ranks(SIZE).run(_sums, bound), strict=True):
        one, skipped = sum(index.received) * 3 * 8, 0
        for epoch, (forwards, backwards, so_far) in enumerate(found):
            fresh = epoch % (bound + 1) == 0
            skipped += 0 if fresh else one
            assert forwards == ((one, 1) if fresh else (0, 0)) and so_far == skipped
            assert backwards == (sum(index.sent) * 3 * 8, 1)
