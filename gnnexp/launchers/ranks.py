"""The ranks of runs on this machine, as the launching process sees them: forks of a starter process that it keeps."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gnnexp.files.pulse import Pulse, is_stopped, kill
from gnnexp.launchers.parent import LAUNCHER_VARIABLE
from gnnexp.launchers.rendezvous_port import rendezvous_port

# Seconds that a starter has to end by itself.
END_S = 5.0
_CHUNK = 1 << 16


class Ranks:
    """A starter process (`gnnexp.launchers.starter`) and the ranks of the last run that it started.

    Args:
        module: module whose `main` every rank runs, with the run directory as its argument. Its `preload`, if it has
            one, imports what all ranks need.
        environment: environment variables of the starter, which the ranks inherit.
        log: file for the starter's output, for example messages of imports.

    Attributes:
        pids: process id of each rank that has started.
        exit_codes: exit code of each rank that has ended; -n if signal n ended it.
        lost: whether the starter itself has ended, and the ranks with it.
    """

    def __init__(self, module: str, environment: Mapping[str, str], log: Path) -> None:
        self.module, self.environment = module, dict(environment)
        self.pids: dict[int, int] = {}
        self.exit_codes: dict[int, int] = {}
        self.lost = False
        self._unread = b""
        # The starter has its own session, so that Ctrl-C reaches only the launching process. It informs the ranks.
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gnnexp.launchers.starter", module],
                env={**self.environment, LAUNCHER_VARIABLE: str(os.getpid())},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=written,
                start_new_session=True,
                bufsize=0,
            )
        self._pulse = Pulse(self._process.pid)

    def start(self, run_dir: Path, num_ranks: int) -> None:
        """Ask the starter for `num_ranks` ranks on `run_dir`; `listen` reports when they have started."""
        self.pids, self.exit_codes = {}, {}
        port = rendezvous_port(os.getpid(), "127.0.0.1")
        places = [
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(num_ranks),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(num_ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            for rank in range(num_ranks)
        ]
        request = {"run_dir": str(run_dir), "folder": str(Path.cwd()), "ranks": places}
        assert self._process.stdin is not None
        self._pulse = Pulse(self._process.pid)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:  # the starter was killed just now
            self.lost = True

    def silent_s(self) -> float:
        """Seconds since the starter's last sign of life; a large value means that it is frozen."""
        return self._pulse.silent_s()

    def listen(self, seconds: float) -> None:
        """Wait at most `seconds` for messages of the starter, and store what they say about the ranks."""
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        if not select.select([stream], [], [], seconds)[0]:
            return
        received = os.read(stream, _CHUNK)
        self.lost = not received
        *lines, self._unread = (self._unread + received).split(b"\n")
        for news in map(json.loads, lines):
            if "pid" in news:
                self.pids[news["rank"]] = news["pid"]
            else:
                self.exit_codes[news["rank"]] = news["exit_code"]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every running rank and its child processes."""
        for rank, pid in self.pids.items():
            if rank not in self.exit_codes:
                with suppress(ProcessLookupError):
                    try:
                        os.killpg(pid, number)
                    except ProcessLookupError:  # a fork that does not lead its own group yet
                        os.kill(pid, number)

    def fits(self, module: str, environment: Mapping[str, str]) -> bool:
        """Whether this starter can start another run."""
        alive = not self.lost and self._process.poll() is None and not is_stopped(self._process.pid)
        return alive and (self.module, self.environment) == (module, dict(environment))

    def close(self, end_s: float = END_S) -> None:
        """End the starter and every rank that is left. A starter that does not end within `end_s` is killed."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(0.0 if is_stopped(process.pid) else end_s)
        except subprocess.TimeoutExpired:
            kill(process)
        process.stdout.close()
        self.lost = True
