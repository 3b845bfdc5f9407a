"""Ranks in one process: threads that take turns. One of them runs at a time, until it waits for the others.

The counting mode runs any number of them. Payloads without values (`ShapeTensor`) are not exchanged, so nobody waits.
All other payloads are: ids, sizes, gradients of parameters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gnnexp.comm.carrier import Carrier
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.errors import RunError
from gnnexp.kernels.shape_tensor import has_values
from gnnexp.measure.phases import PhaseTimer

Name = tuple[tuple[int, ...], int, int]  # ranks that take part, channel, number of the exchange in the channel


class _Exchange:
    """An exchange that has begun.

    Args:
        lock: held by the rank whose turn it is.

    Attributes:
        values: what ranks brought, by rank.
        result: what all of them take, once all have come.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.ready = threading.Condition(lock)
        self.values: dict[int, Any] = {}
        self.result: Any = None
        self.is_over = False


class Turns:
    """Whose turn it is: the rank that holds `lock`. While it waits for others, it lets go of it.

    Attributes:
        lock: held while a rank runs.
        spare_maps: maps of vertices that samplers share: one rank samples at a time.
        failed: the first error of a rank. All ranks that wait then stop.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.spare_maps: list[Any] = []
        self.failed: BaseException | None = None
        self._exchanges: dict[Name, _Exchange] = {}

    def meet(self, name: Name, rank: int, value: object, combine: Callable[[list[Any]], Any]) -> Any:  # noqa: ANN401
        """What `combine` makes of the values of all ranks, in their order. The last rank to come calls it.

        Raises:
            RunError: another rank failed.
        """
        exchange = self._exchanges.setdefault(name, _Exchange(self.lock))
        exchange.values[rank] = value
        size = len(name[0])
        if len(exchange.values) == size:
            exchange.result = combine([exchange.values[member] for member in range(size)])
            exchange.is_over = True
            del self._exchanges[name]
            exchange.ready.notify_all()
        while not exchange.is_over and self.failed is None:
            exchange.ready.wait()
        if self.failed is not None:
            raise RunError("another rank failed")
        return exchange.result

    def fail(self, error: BaseException) -> None:
        """Stop all ranks. The rank that failed calls this in its turn."""
        if self.failed is None:
            self.failed = error
        for exchange in self._exchanges.values():
            exchange.ready.notify_all()


class _Done(dist.Work):
    """Work that has ended."""

    def wait(self, timeout: object = None) -> bool:
        """Nothing to wait for."""
        return True


@dataclass(eq=False)
class VirtualCarrier(Carrier):
    """The exchanges of a rank with other ranks of the process.

    Attributes:
        turns: of all ranks.
        ranks: members of the group.
        rank: this rank's number in the group.
        channel: number of the group. Groups of the same ranks have different ones.
    """

    turns: Turns
    ranks: tuple[int, ...]
    rank: int
    channel: int = 0
    _exchanges: int = field(default=0, init=False)
    _groups: list[int] = field(default_factory=lambda: [0])

    def among(self, ranks: Sequence[int], rank: int) -> VirtualCarrier:
        """See `Carrier`. Its ranks make their groups in one order, so they agree on the channel."""
        self._groups[0] += 1
        return VirtualCarrier(self.turns, tuple(ranks), ranks.index(rank), self._groups[0], self._groups)

    def _meet(self, value: object, combine: Callable[[list[Any]], Any] = list) -> Any:  # noqa: ANN401
        self._exchanges += 1
        return self.turns.meet((self.ranks, self.channel, self._exchanges), self.rank, value, combine)

    def all_reduce(self, payload: Tensor) -> None:
        """See `Carrier`."""
        if has_values(payload):
            payload.copy_(self._meet(payload.clone(), lambda parts: torch.stack(parts).sum(0)))

    def broadcast(self, payload: Tensor, source: int) -> None:
        """See `Carrier`."""
        if has_values(payload):
            payload.copy_(self._meet(payload.clone(), lambda parts: parts[source]))

    def all_to_all(self, target: Tensor, payload: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """See `Carrier`."""
        if has_values(payload):
            pieces = self._meet(torch.split_with_sizes(payload.clone(), list(sent)))
            arrived = [of_rank[self.rank] for of_rank in pieces]
            assert [piece.shape[0] for piece in arrived] == list(received), "ranks agree on the sizes"
            target.copy_(torch.cat(arrived))

    def spread(self, payload: Tensor, parts: Sequence[Tensor], rank: int) -> None:
        """See `Carrier`."""
        if has_values(payload):
            for peer, arrived in enumerate(self._meet(payload.clone())):
                if peer != rank:
                    parts[peer].copy_(arrived)

    def gather(self, own: Tensor, size: int) -> list[Tensor]:
        """See `Carrier`."""
        return [part.clone() for part in self._meet(own.clone())]

    def start_max(self, numbers: Tensor) -> dist.Work:
        """See `Carrier`. It is over at once."""
        numbers.copy_(self._meet(numbers.clone(), lambda parts: torch.stack(parts).amax(0)))
        return _Done()

    def barrier(self) -> None:
        """See `Carrier`. Nobody waits: ranks meet where they need values of each other."""


def virtual_communicator(
    turns: Turns,
    environment: Environment,
    timer: PhaseTimer,
    **options: Any,  # noqa: ANN401  as they are
) -> Communicator:
    """The collectives of a virtual rank among all ranks. `options` as for `Communicator`."""
    carrier = VirtualCarrier(turns, tuple(range(environment.num_ranks)), environment.rank)
    return Communicator(environment, timer, torch.device("cpu"), carrier=carrier, **options)
