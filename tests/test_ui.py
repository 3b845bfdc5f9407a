"""The dashboard's process: who ends it, and on which port it may be."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gnnexp.cli.commands.ui import SECRET_FILE, check_port, serve
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
@pytest.mark.interpreter
def test_ctrl_c_ends_the_server_and_its_children_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ready = tmp_path / "ready"
    threading.Thread(target=_interrupt_when, args=(ready,), daemon=True).start()
    assert serve([sys.executable, "-c", _SERVER, str(ready)]) == 130
    assert capfd.readouterr().err == ""
    with suppress(psutil.NoSuchProcess):  # not by `pid_exists` before: it may end between the two
        assert psutil.Process(int(ready.read_text())).status() == psutil.STATUS_ZOMBIE, "nothing is left"


@pytest.mark.interpreter
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


@pytest.fixture
def _commands(tmp_path: Path, mlflow_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of servers, which are not started. The current folder has a store."""
    commands: list[list[str]] = []
    mlflow_store(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_SERVER_ALLOWED_HOSTS", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr("gnnexp.cli.commands.ui.serve", lambda command: commands.append(command) or 0)
    return commands


def test_the_dashboard_is_for_this_machine_only(_commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.cli.commands.ui._pages", lambda tracker, address: address)
    assert run_command(["ui", "--port", _free_port()]) == 0
    (command,) = _commands
    assert command.count("--host") == 1 and command[command.index("--host") + 1] == "127.0.0.1"


def test_it_serves_the_store_and_no_run_directory(
    _commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    os.mkfifo(tmp_path / "runs" / "one" / "job.json")  # who opens it waits for ever
    monkeypatch.setattr("gnnexp.cli.commands.ui._pages", lambda tracker, address: address)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    assert run_command(["ui", "--port", _free_port()]) == 0
    (command,) = _commands
    assert command[command.index("--backend-store-uri") + 1] == f"sqlite:///{tmp_path}/mlflow.db"


def test_who_can_reach_it_is_said(
    _commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnnexp.cli.commands.ui._pages", lambda tracker, address: f"{address}/#/experiments")
    port = _free_port()
    assert run_command(["ui", "--host", "0.0.0.0", "--port", port]) == 0
    said = capsys.readouterr().out
    secret = SECRET_FILE.read_text()
    assert "everyone who can reach this machine can reach it" in " ".join(said.split())
    assert f"http://{socket.gethostname()}:{port}/?secret={secret}#/experiments" in said
    allowed = os.environ["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert f"{socket.gethostname()}:*" in allowed and "*" not in allowed
    assert _commands[0][_commands[0].index("--host") + 1] == "0.0.0.0"
    assert run_command(["ui", "--host", "127.0.0.1", "--port", port]) == 0
    said = capsys.readouterr().out
    assert "every user of this machine can reach it" in " ".join(said.split()) and f"?secret={secret}#" in said
    assert all(command[command.index("--app-name") + 1] == "gnnexp" for command in _commands)


def test_without_a_secret_it_says_what_that_opens(
    _commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnnexp.cli.commands.ui._pages", lambda tracker, address: address)
    assert run_command(["ui", "--no-secret", "--port", _free_port()]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "every user of this machine can read, change and delete the runs, and read and write files as you" in said
    assert "--app-name" not in _commands[0] and not SECRET_FILE.exists() and "secret=" not in said


def test_a_secret_that_others_can_read_is_refused(
    _commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    SECRET_FILE.parent.mkdir()
    SECRET_FILE.write_text("x")
    SECRET_FILE.chmod(0o644)
    assert run_command(["ui", "--port", _free_port()]) == 2
    assert not _commands and f"rm {SECRET_FILE}" in capsys.readouterr().err


def test_an_installation_without_the_plugin_is_told(
    _commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnnexp.cli.commands.ui.entry_points", lambda group: [])
    assert run_command(["ui", "--port", _free_port()]) == 2
    assert not _commands and "install gnnexp again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "says"), [("no.such.host.invalid", "is no address"), ("192.0.2.1", "of this machine")]
)
def test_a_host_that_is_no_address(
    _commands: list[list[str]], capsys: pytest.CaptureFixture[str], host: str, says: str
) -> None:
    assert run_command(["ui", "--host", host, "--port", _free_port()]) == 2
    assert "--host" in (said := capsys.readouterr().err) and says in said and not _commands


def test_the_page_of_an_experiment(
    _commands: list[list[str]], tmp_path: Path, mlflow_store, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    number = MlflowClient(tracking_uri=mlflow_store(tmp_path)).create_experiment("ogb runs")
    assert run_command(["ui", "--experiment", "ogb runs", "--port", _free_port()]) == 0
    said = capsys.readouterr().out
    assert said.count(f"#/experiments/{number}/runs") == 2 and "compareRunsMode=CHART" in said
    assert run_command(["ui", "--experiment", "ogb run", "--port", _free_port()]) == 2
    assert "did you mean ogb runs?" in capsys.readouterr().err and len(_commands) == 1
