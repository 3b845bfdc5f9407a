"""Pools of real ranks on this machine: processes are started once per number of ranks, then run many cases.

They exchange as the ranks of a run on this machine's devices do: by NCCL where there is a GPU for each, else by gloo.
Ranks are forks of a server that has imported what all of them need, and are found at the loopback interface alone.
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


class RankError(AssertionError):
    """A case failed in a rank; the message is that rank's traceback."""


def _serve(rank: int, size: int, port: int, pipe: Connection) -> None:
    """One rank: join the group, then run what comes through the pipe."""
    assert _PRELOADED in sys.modules, "the fork server skips what it cannot import without a word"
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
    )
    import torch

    from gnnexp.comm.communicator import connect
    from gnnexp.comm.environment import read_environment
    from gnnexp.experiment.schema import HardwareConfig
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
        except BaseException:  # the rank reports any failure and lives on; the pool is then thrown away
            answer = (False, traceback.format_exc())
        pipe.send_bytes(_answered(answer))


def _answered(answer: tuple[bool, Any]) -> bytes:
    """An answer; what a call that came by value returns may be of its module, which has no name here."""
    if "cloudpickle" not in sys.modules:
        return pickle.dumps(answer)
    import cloudpickle

    return bytes(cloudpickle.dumps(answer))


class RankPool:
    """`size` processes in one group, started when first asked to run something."""

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
        """Run `function(*args)` on every rank; it reads its rank from the environment.

        Args:
            function: of any module; sent by value if it is a test's.
            args: the same on every rank.
            timeout_s: of all of it.

        Returns:
            Results in order of rank.

        Raises:
            RankError: a rank raised something, died, or did not answer in time.

        All ranks are ended when this raises, whatever it is.
        """
        if not self._processes:
            self._start()
        try:
            return self._answers(_packed(function, args), timeout_s)
        except BaseException:  # a test's time limit too: what a rank answers later is no answer to the next case
            self.close()
            raise

    def _answers(self, payload: bytes, timeout_s: float) -> list[Any]:
        """What ranks answer to a call, in order of rank."""
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
        """End every process."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes.clear()
        self._pipes.clear()


def _packed(function: Callable[..., Any], args: tuple[object, ...]) -> bytes:
    """A call for ranks, which cannot import modules of tests, whether the function is theirs or what it is given.

    Only these go by value, and need cloudpickle as values do that pickle does not take (a read-only mapping).
    """
    names = {part.__module__ for part in (function, *args) if callable(part)}
    modules = [sys.modules[name] for name in names if not name.startswith("gnnexp.") and (
        name == function.__module__ or any(word.startswith("test") for word in name.split(".")))]
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
    """One pool per rank count, started when first asked for."""

    def __init__(self) -> None:
        self._pools: dict[int, RankPool] = {}

    def __call__(self, size: int) -> RankPool:
        """The pool of `size` ranks."""
        return self._pools.setdefault(size, RankPool(size))

    def close(self) -> None:
        """End every pool."""
        for pool in self._pools.values():
            pool.close()
