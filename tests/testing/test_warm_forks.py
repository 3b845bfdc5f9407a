"""A fork that takes the place of `python -m gnnexp…` has all that a new interpreter would have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from launching import wait_until
from warm_forks import WarmPopen, _adopting

STARTER = [sys.executable, "-m", "gnnexp.launchers.starter", "gnnexp.launchers.base"]
LIST = [sys.executable, "-m", "gnnexp", "list", "systems"]


@pytest.fixture(autouse=True)
def forks() -> None:
    if subprocess.Popen is not WarmPopen:
        pytest.skip("interpreters are real where modules are blocked, and on the emulated device")


def test_parent_session_folder_variables_and_command_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(
            STARTER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=tmp_path,
            start_new_session=True,
            env={**os.environ, "PLANTED": "1"},
            bufsize=0,
        )
    process = psutil.Process(started.pid)
    assert process.ppid() == os.getpid() and _becomes(process, "starter") and not WarmPopen.interpreters
    assert os.getsid(started.pid) == started.pid
    assert process.cmdline() == STARTER
    assert started.stdin is not None
    started.stdin.close()
    assert started.wait(60) == 0 and (tmp_path / "log").read_text() == ""


def test_streams_exit_codes_and_signals(tmp_path: Path) -> None:
    done = subprocess.run(LIST, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "gsplit" in done.stdout and done.stderr == ""
    command = [*LIST[:3], "runn"]
    wrong = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert wrong.returncode == 2 and "runn" in wrong.stdout
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):  # also before it has become what was asked for
        killed = subprocess.Popen(STARTER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        killed.send_signal(number)
        assert killed.wait(60) == -number


def test_a_limit_a_mask_and_the_cores_are_those_of_who_starts_it(tmp_path: Path) -> None:
    cores, mask = os.sched_getaffinity(0), os.umask(0o027)
    os.sched_setaffinity(0, {min(cores)})
    try:
        started = subprocess.Popen(STARTER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    finally:
        os.sched_setaffinity(0, cores)
        os.umask(mask)
    process = psutil.Process(started.pid)
    assert started.stdout is not None
    assert _becomes(process, "starter")
    assert process.cpu_affinity() == [min(cores)]
    assert "Umask:\t0027" in Path(f"/proc/{started.pid}/status").read_text()
    started.communicate()


def _becomes(process: psutil.Process, name: str) -> bool:
    """Wait until a fork has become what it was asked to be."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if process.name() == name:
            return True
    return False


@pytest.mark.slow
def test_a_command_starts_forks_too(tmp_path: Path) -> None:
    """The starter of a run is a child of the run, and no interpreter: this takes a source of the run's own."""
    command = [
        sys.executable,
        "-m",
        "gnnexp",
        "run",
        "dataset=digits",
        "train.epochs=1",
        "model.hidden=8",
        "tracker=none",
        "hydra.run.dir=run",
    ]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process, names = psutil.Process(run.pid), set()
    while "starter" not in names and run.poll() is None:
        names |= _names_of_children(process)
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert {"warm-source", "starter"} <= names


def _names_of_children(process: psutil.Process) -> set[str]:
    names = set()
    with suppress(psutil.NoSuchProcess):  # some end meanwhile
        for child in process.children():
            names.add(child.name())
    return names


def test_what_it_adopts_by_the_way_is_waited_for() -> None:
    """A zombie would stay below this process, and a later test that looks at all children would stumble over it."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 0.3 & echo $!; read go"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        detached = psutil.Process(int(parent.stdout.readline()))
        with _adopting():
            parent.communicate("go\n")
            assert detached.ppid() == os.getpid()
    assert wait_until(lambda: not psutil.pid_exists(detached.pid), 20)


def test_other_variables_of_python_and_other_copies_take_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    for variables in ({"PYTHONPATH": str(tmp_path)}, {"TRITON_INTERPRET": "1"}, {"PYTHONHASHSEED": "0"}):
        done = subprocess.run(
            [*LIST[:3], "--help"], env=os.environ | variables, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("mine") == ("PYTHONPATH" in variables)
    assert len(WarmPopen.interpreters) == 3
    WarmPopen.interpreters.clear()  # this test is about them


def test_folders_of_modules_are_searched(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def main():\n    return 5\n")
    request = json.dumps({"run_dir": "run", "folder": str(tmp_path), "ranks": [{"RANK": "0"}]}) + "\n"
    (tmp_path / "run" / "logs").mkdir(parents=True)
    started = subprocess.Popen(
        [*STARTER[:3], "mine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        bufsize=1,
    )
    assert started.stdin is not None and started.stdout is not None
    started.stdin.write(request)
    started.stdin.flush()
    assert [started.stdout.readline() for _ in range(2)][1].endswith('"exit_code": 5}\n')
    started.communicate()
