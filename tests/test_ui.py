"""The dashboard's process: who ends it, and on which port it may be."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gnnexp.cli.commands.ui import check_port, serve
from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError

# Like uvicorn it would print a traceback on Ctrl-C, and like mlflow it has a child of its own.
_SERVER = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""


@pytest.fixture
def _heeds_ctrl_c() -> Iterator[None]:
    """A shell that runs the tests in the background has SIGINT ignored, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt_when(ready: Path) -> None:
    while not (ready.exists() and ready.read_text()):
        threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("_heeds_ctrl_c")
def test_ctrl_c_ends_the_server_and_its_children_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ready = tmp_path / "ready"
    threading.Thread(target=_interrupt_when, args=(ready,), daemon=True).start()
    assert serve([sys.executable, "-c", _SERVER, str(ready)]) == 130
    assert capfd.readouterr().err == ""
    with suppress(psutil.NoSuchProcess):  # not by `pid_exists` before: it may end between the two
        assert psutil.Process(int(ready.read_text())).status() == psutil.STATUS_ZOMBIE, "nothing is left"


def test_the_servers_own_exit_code() -> None:
    assert serve([sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            check_port(port)
    assert caught.value.problems[0].key == "--port"
    check_port(port)


def _free_port() -> str:
    """Below those that the system gives to connections: ranks of other tests ask for many, one of them for 45871."""
    for port in range(21000, 32000):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return str(port)
    raise AssertionError("no port is free")


def test_the_dashboard_is_for_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("gnnexp.cli.commands.ui.serve", lambda command: commands.append(command) or 0)
    monkeypatch.setattr("gnnexp.cli.commands.ui._page", lambda tracker, address: address)
    assert run_command(["ui", "--port", _free_port()]) == 0
    (command,) = commands
    assert command.count("--host") == 1 and command[command.index("--host") + 1] == "127.0.0.1"
