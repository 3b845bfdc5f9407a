"""Ranks as threads of one process, which run one at a time: fast, and safe for Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Meeting:
    """What ranks exchange. One rank runs at a time, until it waits for the others."""

    def __init__(self, size: int) -> None:
        self.size, self.turn = size, Lock()
        self._barrier = Barrier(size, timeout=60)
        self._given: list[object] = [None] * size

    def swap(self, rank: int, value: T) -> list[T]:
        """The values of all ranks."""
        self._given[rank] = value
        self._wait()
        given = list(self._given)
        self._wait()
        return given  # type: ignore[return-value]

    def _wait(self) -> None:
        self.turn.release()
        try:
            self._barrier.wait()
        finally:
            self.turn.acquire()

    def abort(self) -> None:
        """Let no other rank wait for one that has failed."""
        self._barrier.abort()


class ThreadCommunicator:
    """The part of `Communicator` that samplers use."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting
        self.sent: list[int] = []

    def counted_all_to_all(self, rows: Tensor, sent: Sequence[int], tag: str) -> tuple[Tensor, list[int]]:
        assert tag == "frontier" and sent[self.rank] == 0 and rows.device.type == "cpu"
        self.sent += sent if self.size > 1 else ()
        pieces = self._meeting.swap(self.rank, torch.split_with_sizes(rows.clone(), list(sent)))
        mine = [of_rank[self.rank] for of_rank in pieces]
        return torch.cat(mine), [piece.numel() for piece in mine]

    def gather_objects(self, value: object) -> list[object]:
        return self._meeting.swap(self.rank, value)

    def uncounted(self) -> ThreadCommunicator:
        return ThreadCommunicator(self._meeting, self.rank)


def together(size: int, of_rank: Callable[[ThreadCommunicator], T]) -> list[T]:
    """The results of all ranks."""
    meeting = Meeting(size)

    def run(rank: int) -> T:
        with meeting.turn:
            try:
                return of_rank(ThreadCommunicator(meeting, rank))
            except BaseException:
                meeting.abort()
                raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: type(error).__name__ == "BrokenBarrierError"):
        raise error
    return [future.result() for future in futures]
