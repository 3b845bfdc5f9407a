"""All ranks on this machine, started and watched by torch's elastic agent."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from gnnexp.config.schema import HardwareConfig, run_config
from gnnexp.errors import Problem
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.status import Death, judge, kernel_kills, read_statuses
from gnnexp.launchers.variables import exported, worker_variables
from gnnexp.launchers.watch import STOP_S, Watchdog

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_SIGNAL_NAMES = ",".join(item.name for item in _SIGNALS)
# `exec` keeps the process id, so signals and exit codes are the worker's own; one log per rank, in true order.
_SHELL = 'exec "$@" >>"$0/rank_$RANK.log" 2>&1 </dev/null'


class InterruptedLaunchError(Exception):
    """A signal asked the launching process to stop.

    Attributes:
        sigval: which signal (the name that torch's own exception uses).
    """

    def __init__(self, sigval: signal.Signals) -> None:
        super().__init__(sigval.name)
        self.sigval = sigval


class LocalLauncher(Launcher):
    """One process per worker on this machine (`torch.distributed.launcher.elastic_launch`, command entry).

    Args:
        worker_module: what every rank runs with `python -m`.
    """

    def __init__(self, worker_module: str = "gnnexp.worker") -> None:
        self.worker_module = worker_module

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """A local run has one machine, and somebody who waits for it."""
        nodes = config["hardware"].get("nodes", 1)
        problems = [] if nodes == 1 else [Problem("hardware.nodes", nodes, "this launcher starts ranks on one machine",
                                                  "hardware.nodes=1, and more hardware.workers")]
        if config["hardware"].get("detach"):
            problems.append(Problem("hardware.detach", True, "a local run ends with the process that started it",
                                    "hardware.detach=false, or run it under nohup"))
        return problems

    def check_here(self, config: Mapping[str, Any]) -> list[Problem]:
        """It may only ask for a device that this machine has."""
        if config["hardware"].get("device") != "cuda" or _has_cuda():
            return []
        return [Problem("hardware.device", "cuda", "no CUDA device is visible", "set hardware.device=cpu")]

    def launch(self, run_dir: Path, config: Mapping[str, Any]) -> Outcome:
        """See `Launcher.launch`. Must be called in the main thread: signals go to it, and workers die with it."""
        hardware = run_config(config).hardware
        run_dir = run_dir.resolve()
        shutil.rmtree(run_dir / "status", ignore_errors=True)  # words of an earlier attempt
        for folder in ("logs", "status"):
            (run_dir / folder).mkdir(exist_ok=True)
        variables = worker_variables(hardware, num_cores()) | {
            "GNNEXP_LAUNCHER_PID": str(os.getpid()),  # a worker that starts after its launcher died can see that
            "TORCHELASTIC_SIGNALS_TO_HANDLE": _SIGNAL_NAMES,
        }
        watchdog, kills = Watchdog(run_dir, hardware.workers, hardware.timeout_s), kernel_kills()
        with _signals_raise(), _passed_on(watchdog), _quiet_agent(), exported(variables):
            watchdog.start()
            try:
                exit_codes = self._run_agent(run_dir, hardware)
            except InterruptedLaunchError as error:
                return _interrupted(error.sigval)
            finally:
                watchdog.close()
        return _outcome(run_dir, hardware.workers, exit_codes, watchdog, kernel_kills() > kills)

    def _run_agent(self, run_dir: Path, hardware: HardwareConfig) -> dict[int, int]:
        """Exit codes of the ranks that failed, in the order in which they were noticed."""
        from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        command = (str(run_dir / "logs"), sys.executable, "-m", self.worker_module, str(run_dir))
        with tempfile.TemporaryDirectory(prefix="gnnexp-agent-") as scratch:
            launch = LaunchConfig(
                min_nodes=1, max_nodes=1, nproc_per_node=hardware.workers, run_id=uuid.uuid4().hex,
                # By a file: torch's TCP store listens on every interface of the machine.
                rdzv_backend="c10d", rdzv_endpoint=f"{scratch}/rendezvous", local_addr="127.0.0.1",
                rdzv_configs={"timeout": hardware.timeout_s, "store_type": "file"}, max_restarts=0,
                monitor_interval=0.1, shutdown_timeout=int(STOP_S), signals_to_handle=_SIGNAL_NAMES,
                logs_specs=DefaultLogsSpecs(log_dir=scratch),  # error files of its own, which no worker writes
            )
            try:
                elastic_launch(launch, "/bin/sh")("-c", _SHELL, *command)
            except ChildFailedError as error:
                return {rank: failure.exitcode for rank, failure in error.failures.items()}
            except SignalException as error:
                raise InterruptedLaunchError(signal.Signals(error.sigval)) from error
        return {}


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1


def _outcome(
    run_dir: Path, num_ranks: int, exit_codes: Mapping[int, int], watchdog: Watchdog, out_of_memory: bool
) -> Outcome:
    states = {status.rank: status.state for status in read_statuses(run_dir)}
    finished = {rank for rank, state in states.items() if state in ("finished", "stopped")}
    if len(finished) == num_ranks:
        stopped = "stopped" in states.values()
        return _interrupted(signal.SIGTERM) if stopped else Outcome(0, "finished")
    own = watchdog.killed
    # Survivors are ended by the agent's SIGTERM: a cause only if there is no other.
    ended = {rank: code for rank, code in exit_codes.items() if rank not in own and rank not in finished}
    causes = {rank: code for rank, code in ended.items() if code != -signal.SIGTERM} or ended
    lost = {rank: None for rank in watchdog.vanished if rank not in exit_codes and rank not in own}
    deaths = [
        Death(rank, code, watchdog.vanished.get(rank, time.time()), out_of_memory and code == -signal.SIGKILL)
        for rank, code in (lost | causes).items()
    ]
    return judge(run_dir, deaths, watchdog.hung)


def _interrupted(number: signal.Signals) -> Outcome:
    said = f"interrupted by {number.name}"
    return Outcome(128 + number, "interrupted", said, said, "interrupted")


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Signals raise here, before and after the agent has its own handlers; the caller's come back at the end."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise InterruptedLaunchError(signal.Signals(number))

    before = {item: signal.signal(item, stop) for item in _SIGNALS}
    try:
        yield
    finally:
        for item, handler in before.items():
            signal.signal(item, handler)


@contextmanager
def _passed_on(watchdog: Watchdog) -> Iterator[None]:
    """SIGUSR2 asks the ranks for a checkpoint; this process has nothing to do with it."""
    before = signal.signal(signal.SIGUSR2, lambda *_: watchdog.tell(signal.SIGUSR2))
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """The agent's own messages repeat, less precisely, what the ranks' status files say."""
    import torch.distributed.launcher.api  # noqa: F401  its loggers exist once it is imported

    names = [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
