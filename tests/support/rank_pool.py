"""Persistent pools of real gloo ranks: processes are started once per rank count, then run many cases."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle


class RankError(AssertionError):
    """A case failed in a rank; the message is that rank's traceback."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_fork_server() -> None:
    """Once per process: ranks are forks of a server that has imported what they need (`preloaded`)."""
    set_before = os.environ.get("PYTHONPATH")
    # In Python 3.11 the server looks for what it preloads in its own path, whatever the path is here.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.set_forkserver_preload(["preloaded"])
        forkserver.ensure_running()
    finally:
        if set_before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = set_before


def _serve(rank: int, size: int, port: int, pipe: Connection) -> None:
    """One rank: join the group, then run what comes through the pipe."""
    assert "preloaded" in sys.modules, "the fork server skips what it cannot import without a word"
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
    )
    import torch

    from gnnexp.comm.communicator import connect
    from gnnexp.comm.environment import read_environment

    torch.set_num_threads(1)
    connect(read_environment(), torch.device("cpu"), timeout_s=60)
    while True:
        try:
            payload = pipe.recv_bytes()
        except EOFError:
            return
        try:
            function, args = cloudpickle.loads(payload)
            answer: tuple[bool, Any] = (True, function(*args))
        except BaseException:  # the rank reports any failure and lives on; the pool is then thrown away
            answer = (False, traceback.format_exc())
        pipe.send_bytes(cloudpickle.dumps(answer))


class RankPool:
    """`size` processes in one gloo group."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []

    def _start(self) -> None:
        context = get_context("forkserver")
        _start_fork_server()
        port = _free_port()
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.size, port, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, function: Callable[..., Any], *args: Any, timeout_s: float = 120.0) -> list[Any]:
        """`function(*args)` on every rank (it reads its rank from the environment); results in order of rank."""
        if not self._processes:
            self._start()
        # Ranks cannot import test modules by name, whether the function is theirs or what it is given.
        names = {part.__module__ for part in (function, *args) if callable(part)}
        modules = [sys.modules[name] for name in names if name == function.__module__ or name.startswith("tests.")]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            payload = cloudpickle.dumps((function, args))
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        for pipe in self._pipes:
            pipe.send_bytes(payload)
        results: dict[int, Any] = {}
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        while waiting:
            ready = wait(list(waiting), timeout=timeout_s)
            if not ready:
                self.close()
                raise RankError(f"ranks {sorted(waiting.values())} did not answer in {timeout_s} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = waiting.pop(pipe)
                try:
                    good, value = cloudpickle.loads(pipe.recv_bytes())
                except EOFError:
                    good, value = False, "the process died"
                if not good:
                    self.close()
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


class RankPools:
    """One pool per rank count, started when first asked for."""

    def __init__(self) -> None:
        self._pools: dict[int, RankPool] = {}

    def __call__(self, size: int) -> RankPool:
        return self._pools.setdefault(size, RankPool(size))

    def close(self) -> None:
        """End every pool."""
        for pool in self._pools.values():
            pool.close()
