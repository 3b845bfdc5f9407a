"""`gnnexp ui`: MLflow's dashboard on 127.0.0.1, with as few processes as it can do with."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import tracker_of
from gnnexp.experiment.packages import is_installed, missing_package

if TYPE_CHECKING:
    from gnnexp.trackers.mlflow import MlflowTracker

# slurm/README.md: up in 4 s with 2 processes and 0.4 GB; its defaults take 8 s, 15 processes and 2.4 GB.
_LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_GRACE_S = 5.0


def main(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: MLflow is not installed, or the port cannot be had.
    """
    if not is_installed("mlflow"):
        raise ConfigError(missing_package("gnnexp ui", "mlflow", "mlflow"))
    from gnnexp.trackers.mlflow import MlflowTracker

    check_port(options.port)
    tracker = tracker_of(compose([]).config)
    assert isinstance(tracker, MlflowTracker), "conf/config.yaml chooses it"
    uri = tracker.uri
    if uri.startswith("http"):
        print(f"the runs are on a server: open {_page(tracker, tracker.where())}")
        return 0
    address = f"http://127.0.0.1:{options.port}"
    print(f"dashboard: {_page(tracker, address)}   (Ctrl-C ends it)", flush=True)
    return serve([
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(options.port), "--workers", "1",
        "--backend-store-uri", uri, "--artifacts-destination", str(Path("mlartifacts").resolve()),
    ])


def _page(tracker: MlflowTracker, address: str) -> str:
    """The runs' page with its columns chosen; where the store does not answer yet, the server's first page."""
    from gnnexp.trackers.base import TrackingError

    try:
        return tracker.view(address)
    except TrackingError:
        return f"{address}/#/experiments"


def check_port(port: int) -> None:
    """Whether a server can listen on `port` of 127.0.0.1.

    Raises:
        ConfigError: it cannot.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(Problem("--port", port, "must be 1 to 65535", "--port 5000"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: not stopped by old connections
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(Problem("--port", port, f"cannot be listened on: {error.strerror}",
                                      f"--port {port + 1 if port < 65535 else 5000}")) from None


def serve(command: list[str]) -> int:
    """Run the server until it ends or a signal comes; returns the exit code.

    It is in a process group of its own, so that Ctrl-C reaches this process only: uvicorn prints a traceback for it.
    """
    before = signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))  # a closed terminal ends the server too
    server = subprocess.Popen(command, env={**os.environ, **_LEAN}, process_group=0)
    try:
        return server.wait()
    except KeyboardInterrupt as request:
        if type(request) is not KeyboardInterrupt:
            raise  # SIGTERM: the command line names it
        return 128 + signal.SIGINT
    finally:
        _end(server)
        signal.signal(signal.SIGHUP, before)


def _end(server: subprocess.Popen[bytes]) -> None:
    """The server and its own children, gently first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_S
        try:
            os.killpg(server.pid, number)
            while time.monotonic() < deadline:
                server.poll()  # as long as it is not reaped, its group is there
                os.killpg(server.pid, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            return
