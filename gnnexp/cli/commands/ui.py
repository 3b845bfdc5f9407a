"""`gnnexp ui`: MLflow's dashboard on 127.0.0.1, with as few processes as possible."""

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

# slurm/README.md: it starts in 4 s with 2 processes and 0.4 GB. MLflow's defaults take 8 s, 15 processes and 2.4 GB.
_LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_GRACE_S = 5.0


def main(options: argparse.Namespace) -> int:
    """Serve the dashboard until Ctrl-C.

    Raises:
        ConfigError: MLflow is not installed, or the port is not free.
    """
    if not is_installed("mlflow"):
        raise ConfigError(missing_package("gnnexp ui", "mlflow", "mlflow"))
    from gnnexp.trackers.mlflow import MlflowTracker

    check_port(options.port)
    tracker = tracker_of(compose([]).config)
    assert isinstance(tracker, MlflowTracker), "conf/base.yaml chooses it"
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
    """The page of the runs with chosen columns. If the store does not answer yet, it is the server's first page."""
    from gnnexp.trackers.base import TrackingError

    try:
        return tracker.view(address)
    except TrackingError:
        return f"{address}/#/experiments"


def check_port(port: int) -> None:
    """Check that a server can listen on `port` of 127.0.0.1.

    Raises:
        ConfigError: no server can listen there.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(Problem("--port", port, "must be 1 to 65535", "--port 5000"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, in spite of old connections
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(Problem("--port", port, f"cannot be used: {error.strerror}",
                                      f"--port {port + 1 if port < 65535 else 5000}")) from None


def serve(command: list[str]) -> int:
    """Run the server until it ends or a signal comes, and return the exit code.

    The server has its own process group, so that Ctrl-C reaches only this process: uvicorn would print a traceback.
    """
    before = signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))  # a closed terminal ends the server too
    server = subprocess.Popen(command, env={**os.environ, **_LEAN}, process_group=0)
    try:
        return server.wait()
    except KeyboardInterrupt as request:
        if type(request) is not KeyboardInterrupt:
            raise  # SIGTERM: `gnnexp.cli.main` reports it
        return 128 + signal.SIGINT
    finally:
        _end(server)
        signal.signal(signal.SIGHUP, before)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its child processes, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_S
        try:
            os.killpg(server.pid, number)
            while time.monotonic() < deadline:
                server.poll()  # its group exists until it is reaped
                os.killpg(server.pid, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            return
