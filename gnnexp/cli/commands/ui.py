"""`gnnexp ui`: MLflow's dashboard, by default on 127.0.0.1, with as few processes as possible."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.cli.console import make_console, marked
from gnnexp.cli.running.store import prepare_store
from gnnexp.components.packages import is_installed, missing_package
from gnnexp.components.signature import unknown
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import tracker_of
from gnnexp.trackers.guard import FILE_VARIABLE, PARAMETER, PLACE_VARIABLE, kept_secret

if TYPE_CHECKING:
    from rich.text import Text

    from gnnexp.trackers.mlflow import MlflowTracker

# slurm/README.md: it starts in 4 s with 2 processes and 0.4 GB. MLflow's defaults take 8 s, 15 processes and 2.4 GB.
_LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_GRACE_S = 5.0
# The secret stays the same, so that pages and notebooks that are open go on after a restart.
SECRET_FILE, _PLUGIN = Path(".gnnexp") / "ui.secret", "gnnexp"
# MLflow's page answers only to names of its server that are in this variable (a protection against DNS rebinding).
_NAMES_VARIABLE = "MLFLOW_SERVER_ALLOWED_HOSTS"
_PRIVATE = ("localhost", "127.0.0.1", "10.*", "192.168.*", *(f"172.{number}.*" for number in range(16, 32)))


def main(options: argparse.Namespace) -> int:
    """Serve the dashboard until Ctrl-C.

    Raises:
        ConfigError: MLflow is not installed, the port is not free, or there is no such host or experiment.
    """
    if not is_installed("mlflow"):
        raise ConfigError(missing_package("gnnexp ui", "mlflow", "mlflow"))
    from gnnexp.trackers.mlflow import MlflowTracker

    tracker = tracker_of(compose([]).config)
    assert isinstance(tracker, MlflowTracker), "conf/base.yaml chooses it"
    uri = tracker.uri
    if not uri.startswith("http"):
        check_port(options.port, options.host)
        _make_ready(tracker)
    if options.experiment:
        tracker = _of_experiment(tracker, options.experiment)
    if uri.startswith("http"):
        print(f"the runs are on a server: open {_pages(tracker, tracker.where())}")
        return 0
    if not is_loopback(options.host):
        os.environ.setdefault(_NAMES_VARIABLE, ",".join(_names(options.host)))
    address, files = _address(options.host, options.port), Path("mlartifacts").resolve()
    pages, guards = _pages(tracker, address), list[str]()
    if not options.no_secret:
        pages, guards = pages.replace(f"{address}/#", f"{address}/?{PARAMETER}={_secret()}#"), _guards(files)
    console = make_console()
    console.print(_reached_by(options.host, secret=not options.no_secret), soft_wrap=True)
    print(f"dashboard: {pages}\n(Ctrl-C ends it)", flush=True)
    return serve(
        [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            options.host,
            "--port",
            str(options.port),
            "--workers",
            "1",
            "--backend-store-uri",
            uri,
            "--artifacts-destination",
            str(files),
            *guards,
        ]
    )


def _secret() -> str:
    """The secret of this folder's dashboard.

    Raises:
        ConfigError: its file cannot be used.
    """
    try:
        return kept_secret(SECRET_FILE)
    except (OSError, ValueError) as error:
        raise ConfigError(
            Problem(
                str(SECRET_FILE),
                str(error),
                "must be a file that only you can read",
                f"rm {SECRET_FILE}, then: gnnexp ui",
            )
        ) from None


def _guards(files: Path) -> list[str]:
    """Options of MLflow's server for its application behind the secret. No log has addresses: the first has the secret.

    Raises:
        ConfigError: gnnexp was installed before it had this plugin.
    """
    if not any(plugin.name == _PLUGIN for plugin in entry_points(group="mlflow.app")):
        raise ConfigError(
            Problem(
                "gnnexp ui",
                "mlflow.app",
                "MLflow does not know gnnexp's application",
                "install gnnexp again: pip install -e . (in a checkout), or gnnexp ui --no-secret",
            )
        )
    os.environ |= {FILE_VARIABLE: str(SECRET_FILE.resolve()), PLACE_VARIABLE: str(files)}
    return ["--app-name", _PLUGIN, "--uvicorn-opts=--no-access-log"]


def _reached_by(host: str, *, secret: bool) -> Text:
    """Who can reach the dashboard, and what they can do."""
    who = "every user of this machine" if is_loopback(host) else "everyone who can reach this machine"
    if secret:
        return marked(
            who,
            "bold",
            f" can reach it; it answers only with the secret in {SECRET_FILE}, which is in the "
            f"address. Scripts: export MLFLOW_TRACKING_TOKEN=$(cat {SECRET_FILE})",
        )
    return marked(
        "warning",
        "yellow",
        f" {who} can read, change and delete the runs, and read and write files as you: "
        "let only a proxy that asks for a password reach it",
    )


def _make_ready(tracker: MlflowTracker) -> None:
    """Make the store complete: MLflow's server, which Ctrl-C ends at any time, would leave it half made.

    Raises:
        ConfigError: the store cannot be used.
    """
    if why := prepare_store(tracker, make_console()):
        raise ConfigError(Problem("tracker.uri", tracker.where(), why.reason, "then: gnnexp ui"))


def _of_experiment(tracker: MlflowTracker, name: str) -> MlflowTracker:
    """The tracker of another experiment in the same store.

    Raises:
        ConfigError: the store has no such experiment, or does not answer.
    """
    from gnnexp.trackers.base import TrackingError

    try:
        known = tracker.experiments()
    except TrackingError as error:
        raise ConfigError(Problem("--experiment", name, str(error), "leave it out, or start the server")) from None
    if name not in known:
        raise ConfigError(unknown("--experiment", name, name, known))
    return tracker.with_experiment(name)


def _pages(tracker: MlflowTracker, address: str) -> str:
    """The pages of the runs: list and charts. If the store does not answer yet, it is the server's first page."""
    from gnnexp.trackers.base import TrackingError

    try:
        return f"{tracker.view(address)}\n   charts: {tracker.view(address, charts=True)}"
    except TrackingError:
        return f"{address}/#/experiments"


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names(host: str) -> list[str]:
    """The names under which other machines may reach a server that listens on `host`, with any port."""
    names = dict.fromkeys((*_PRIVATE, host, socket.gethostname(), socket.getfqdn()))
    return [form for name in names for form in (name, f"{name}:*")]


def _address(host: str, port: int) -> str:
    """The address of the dashboard for a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # these mean all addresses of the machine
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def check_port(port: int, host: str = "127.0.0.1") -> None:
    """Check that a server can listen on `port` of the address `host`.

    Raises:
        ConfigError: no server can listen there.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(Problem("--port", port, "must be 1 to 65535", "--port 5000"))
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            Problem("--host", host, f"is no address: {error}", "--host 0.0.0.0, or leave it out")
        ) from None
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, in spite of old connections
        try:
            probe.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(
                    Problem("--host", host, "is no address of this machine", "--host 0.0.0.0, or leave it out")
                ) from None
            raise ConfigError(
                Problem(
                    "--port", port, f"cannot be used: {error.strerror}", f"--port {port + 1 if port < 65535 else 5000}"
                )
            ) from None


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
