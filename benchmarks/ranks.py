"""Long-lived processes of one or more ranks that carry out one command after another."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnexp.experiment.build import hardware_of
from gnnexp.files.private import make_private
from gnnexp.launchers.variables import worker_variables

HERE = Path(__file__).resolve().parent.parent


class Ranks:
    """The ranks of one configuration, each running `script` with the request as its argument.

    Args:
        script: in the checkout's `benchmarks`; answers every line on its stdin by one line of JSON on its stdout.
        config: resolved.
        tree: the checkout whose code runs; this one unless another is given.
        python: interpreter of another environment; None: the running one.
        request: what else the script wants to know. It also gets `run_dir`, a folder with a run's secret, which goes
            with `close`.
    """

    def __init__(
        self,
        script: str,
        config: dict[str, Any],
        *,
        tree: Path = HERE,
        python: Path | None = None,
        **request: Any,  # noqa: ANN401
    ) -> None:
        hardware = hardware_of(config)
        size, port = hardware.num_ranks, _free_port()
        self._run_dir = tempfile.TemporaryDirectory()
        make_private(Path(self._run_dir.name), here=True)
        text = json.dumps({"config": config, "run_dir": self._run_dir.name, **request})
        self._processes = [
            subprocess.Popen(
                [str(python or sys.executable), str(tree / "benchmarks" / script), text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    **worker_variables(hardware, len(os.sched_getaffinity(0))),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(size),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "PYTHONPATH": str(tree),
                },
            )
            for rank in range(size)
        ]

    def ask(self, line: str = "go") -> list[dict[str, Any]]:
        """Have all ranks do it, return their answers in order of rank."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        return [self._answer(process) for process in self._processes]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait()
        self._run_dir.cleanup()

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"a rank ended with {process.wait()}")
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer


def interleave(running: Mapping[str, Ranks], pairs: int) -> list[dict[str, list[dict[str, Any]]]]:
    """Answers of all ranks of all systems, asked in turn; the first answer of each warms up. Ends the systems."""
    for system in running.values():
        system.ask()
    rows = [{name: system.ask() for name, system in running.items()} for _ in range(pairs)]
    for system in running.values():
        system.close()
    return rows


def slowest(rows: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> dict[str, list[float]]:
    """Seconds of an epoch on the slowest rank, by system."""
    return {name: [max(rank["epoch_s"] for rank in row[name]) for row in rows] for name in rows[0]}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
