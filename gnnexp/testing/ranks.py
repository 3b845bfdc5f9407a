"""Pools of real ranks on this machine: processes start once per number of ranks, and then run many cases.

Ranks exchange like the ranks of a run on this machine: by NCCL if each rank has its own GPU, else by gloo. They are
forks of a server that has imported all modules that they need. They listen only on the loopback interface.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from gnnexp.launchers.rendezvous_port import rendezvous_port

_PRELOADED = "gnnexp.testing.preloaded"
END_S = 5.0  # a rank that waits for a call ends in milliseconds


class RankError(AssertionError):
    """A case failed on a rank. The message is the rank's traceback."""


def _serve(rank: int, size: int, port: int, pipe: Connection) -> None:
    """One rank: join the group, then run the calls that come through the pipe."""
    assert _PRELOADED in sys.modules, "the fork server silently skips modules that it cannot import"
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
    )
    import torch

    from gnnexp.comm.communicator import connect
    from gnnexp.comm.environment import read_environment
    from gnnexp.components.schema import HardwareConfig
    from gnnexp.training.assemble import choose_device

    torch.set_num_threads(1)
    environment = read_environment()
    connect(environment, choose_device(HardwareConfig(), environment), timeout_s=60)
    while True:
        try:
            payload = pipe.recv_bytes()
        except EOFError:
            return
        try:
            function, args = pickle.loads(payload)
            answer: tuple[bool, Any] = (True, function(*args))
        except BaseException:  # the rank reports any failure and continues; its pool is then ended
            answer = (False, traceback.format_exc())
        pipe.send_bytes(_answered(answer))


def _answered(answer: tuple[bool, Any]) -> bytes:
    """An answer as bytes. cloudpickle is needed if the result has a class from a module that came by value."""
    if "cloudpickle" not in sys.modules:
        return pickle.dumps(answer)
    import cloudpickle

    return bytes(cloudpickle.dumps(answer))


class RankPool:
    """`size` processes in one group. They start at the first call of `run`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []

    def _start(self) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([_PRELOADED])
        port = rendezvous_port(os.getpid(), "127.0.0.1")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.size, port, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, function: Callable[..., Any], *args: object, timeout_s: float = 120.0) -> list[Any]:
        """Run `function(*args)` on every rank. The function reads its rank from the environment.

        Args:
            function: a function of any module. A function of a test is sent by value.
            args: arguments, the same on every rank.
            timeout_s: seconds to wait for the next answer of a rank.

        Returns:
            Results in the order of ranks.

        Raises:
            RankError: a rank raised an error, died, or did not answer in time.

        If this raises anything, all ranks are ended.
        """
        if not self._processes:
            self._start()
        try:
            return self._answers(_packed(function, args), timeout_s)
        except BaseException:  # also a test's time limit: a late answer must not count for the next case
            self.kill()
            raise

    def _answers(self, payload: bytes, timeout_s: float) -> list[Any]:
        """The ranks' answers to a call, in the order of ranks."""
        for pipe in self._pipes:
            pipe.send_bytes(payload)
        results: dict[int, Any] = {}
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        while waiting:
            ready = wait(list(waiting), timeout=timeout_s)
            if not ready:
                raise RankError(f"ranks {sorted(waiting.values())} did not answer in {timeout_s} s")
            for answered in ready:
                assert isinstance(answered, Connection)
                rank = waiting.pop(answered)
                try:
                    good, value = pickle.loads(answered.recv_bytes())
                except EOFError:
                    good, value = False, "the process died"
                if not good:
                    raise RankError(f"rank {rank} of {self.size}:\n{value}")
                results[rank] = value
        return [results[rank] for rank in range(self.size)]

    def close(self) -> None:
        """End all processes. If coverage is measured, they end by themselves, since they write what they measured."""
        if "coverage" in sys.modules:
            for pipe in self._pipes:
                pipe.close()
            for process in self._processes:
                process.join(END_S)
        self.kill()

    def kill(self) -> None:
        """End all processes at once."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes.clear()
        self._pipes.clear()


def _packed(function: Callable[..., Any], args: tuple[object, ...]) -> bytes:
    """A call as bytes. Ranks cannot import modules of tests, so functions and arguments of tests are sent by value.

    This needs cloudpickle. So do values that pickle cannot handle (a read-only mapping).
    """
    names = {part.__module__ for part in (function, *args) if callable(part)}
    modules = [
        sys.modules[name]
        for name in names
        if not name.startswith("gnnexp.")
        and (name == function.__module__ or any(word.startswith("test") for word in name.split(".")))
    ]
    if not modules:
        with suppress(TypeError, AttributeError, pickle.PicklingError):
            return pickle.dumps((function, args))
    import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((function, args)))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class RankPools:
    """One pool for each number of ranks, made when it is first needed."""

    def __init__(self) -> None:
        self._pools: dict[int, RankPool] = {}

    def __call__(self, size: int) -> RankPool:
        """The pool of `size` ranks."""
        return self._pools.setdefault(size, RankPool(size))

    @property
    def sizes(self) -> frozenset[int]:
        """For how many ranks there is a pool: each keeps its processes."""
        return frozenset(self._pools)

    def close(self) -> None:
        """End all pools."""
        for pool in self._pools.values():
            pool.close()
