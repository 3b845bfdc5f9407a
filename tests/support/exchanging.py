"""Communicators of tests, what they sent, and rows for them to exchange."""

from __future__ import annotations

import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.comm.shuffle import ShuffleIndex
from gnnexp.measure.phases import PhaseTimer

CPU = torch.device("cpu")
Sent = dict[str, tuple[int, int]]


def connect() -> Communicator:
    return Communicator(read_environment(), PhaseTimer(), CPU)


def alone() -> Communicator:
    return Communicator(Environment(), PhaseTimer(), CPU)


def traffic(comm: Communicator) -> Sent:
    """(bytes, rounds) by tag since the last call."""
    return {tag: (entry.sent_bytes, entry.rounds) for tag, entry in comm.ledger.take().items()}


def how_many(sender: int, receiver: int) -> int:
    """Rows from one rank to another: none for some pairs, another number for every other pair."""
    return 0 if sender == receiver or (sender, receiver) == (1, 0) else 1 + 2 * sender + receiver


def rows_for(sender: int, receiver: int, width: int = 3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    count = how_many(sender, receiver)
    generator = torch.Generator().manual_seed(10 * sender + receiver)
    return torch.rand((count, width), generator=generator, dtype=torch.float64).to(dtype)


def counts(comm: Communicator) -> tuple[list[int], list[int]]:
    return (
        [how_many(comm.rank, other) for other in range(comm.size)],
        [how_many(other, comm.rank) for other in range(comm.size)],
    )


def indices(size: int) -> list[ShuffleIndex]:
    """For every rank: the same local row may go to several ranks, to each at most once."""
    generator = torch.Generator().manual_seed(size)
    local = [6 + 2 * rank for rank in range(size)]
    sends = [
        [
            torch.empty(0, dtype=torch.int64)
            if a == b or (a, b) == (1, 0)
            else torch.randperm(local[a], generator=generator)[: 2 + b]
            for b in range(size)
        ]
        for a in range(size)
    ]
    return [
        ShuffleIndex(
            torch.cat(sends[rank]),
            tuple(part.numel() for part in sends[rank]),
            tuple(sends[other][rank].numel() for other in range(size)),
            local[rank],
        )
        for rank in range(size)
    ]


def local_rows(size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + size)
    return [torch.rand((index.num_local, 3), generator=generator, dtype=torch.float64) for index in indices(size)]
