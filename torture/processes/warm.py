"""gnnexp's processes without the seconds of importing: forks of one process that has imported everything.

A command of the campaign, and every `python -m …` that gnnexp starts itself, becomes a fork instead of a new
interpreter. Parents, pipes, sessions, environments, working folders and kills are those of real commands.

`start_command` forks the command. Before the command does anything, it forks `spare` processes that wait. When the
command calls `subprocess.Popen([sys.executable, "-m", MODULE, …])`, a waiting one becomes that module. They are forked
early, because a process that holds pipes and threads already must not be forked without an exec.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_NAME = 15
_MESSAGE = 1 << 20
# More than any process here has open.
_DESCRIPTORS = 1024
_MODULES = (
    "gnnexp.worker",
    "gnnexp.cli.commands.run",
    "gnnexp.cli.commands.resume",
    "gnnexp.cli.commands.sweep",
    "gnnexp.cli.commands.report",
    "gnnexp.cli.commands.jobs",
    "gnnexp.cli.running.execute",
    "gnnexp.cli.running.prepare",
    "gnnexp.cli.sweeping.side_by_side",
    "gnnexp.launchers.local",
    "gnnexp.trackers.mlflow",
    "gnnexp.config.compose",
    "mlflow",
    "mlflow.server",
    "mlflow.tracking.client",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.artifact.local_artifact_repo",
    "werkzeug.test",
    "sqlalchemy.dialects.sqlite",
    "sklearn.datasets",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "pymetis",
)
_FOLDERS = ("datasets", "paradigms", "samplers", "feature_stores", "models", "partitioners", "tasks")
# The plain class, whatever takes its place below.
_Popen = subprocess.Popen


def preload() -> None:
    """Import what commands, ranks and deliveries need; no thread may be started, because forks follow.

    Raises:
        RuntimeError: an import started a thread.
    """
    import gnnexp

    for name in _MODULES:
        importlib.import_module(name)
    package = Path(str(gnnexp.__file__ or next(iter(gnnexp.__path__)))).parent
    for folder in _FOLDERS:
        # DGL, whose state would be shared: its draws depend on what its process drew before.
        for file in sorted({*(package / folder).glob("*.py")} - {*(package / folder).glob("*dgl*")}):
            try:
                importlib.import_module(f"gnnexp.{folder}.{file.stem}")
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("gnnexp"):
                    raise
    importlib.import_module("gnnexp.worker").preload()
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()][1:]
    # pyarrow's allocator has one, and takes care of forks itself (jemalloc's own handlers).
    if strange := [name for name in names if name != "jemalloc_bg_thd"]:
        raise RuntimeError(f"imports started threads ({', '.join(strange)}): their process cannot be forked")


@dataclass(frozen=True)
class Surroundings:
    """What a command finds around it.

    Attributes:
        folder: the working folder.
        environment: all of it.
        log: both streams are appended to this file.
        warm: whether it is a fork of this process; else a new interpreter, which takes its seconds, as a user's does.
        spare: how many processes a warm command can start without a new interpreter.
        group: control group of the command and of everything that it starts; None = that of this process.
        user: whose rights it has; None = those of this process.
    """

    folder: Path
    environment: Mapping[str, str]
    log: Path
    warm: bool = True
    spare: int = 3
    group: Path | None = None
    user: int | None = None


def start_command(arguments: Sequence[str], around: Surroundings) -> int:
    """Start `gnnexp ARGUMENTS…` as a child of this process, in a session of its own; its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = fork()
    if pid == 0:
        ended_by(lambda: _command(arguments, around))
    return pid


def _command(arguments: Sequence[str], around: Surroundings) -> int:
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what follows is not gnnexp's to answer
    os.setsid()
    if around.group is not None:
        (around.group / "cgroup.procs").write_text(str(os.getpid()))
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(around.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for opened, stream in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(opened, stream)
    os.closerange(3, _DESCRIPTORS)
    os.chdir(around.folder)
    if around.user is not None:
        become(around.user)
    if not around.warm:
        os.execve(sys.executable, [sys.executable, "-m", "gnnexp", *arguments], dict(around.environment))
    os.environ.clear()
    os.environ.update(around.environment)
    sys.argv = ["gnnexp", *arguments]
    call_it("gnnexp")
    _take_spare(around.spare)
    from gnnexp.cli.main import run_command

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return run_command(arguments)
    except KeyboardInterrupt:  # as in `gnnexp.__main__`, or before gnnexp began, as to an interpreter that starts
        return 128 + signal.SIGINT


def become(user: int) -> None:
    """Take the rights of another user, for good: the real user too, or it could still signal as before."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def fork() -> int:
    """`os.fork` that no signal interrupts: Python swallows what a handler raises in its hooks around a fork.

    `subprocess`, which gnnexp uses where these are forks, has no such hooks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended_by(work: Callable[[], int]) -> NoReturn:
    """What an interpreter does around a program, then the end of this fork: nothing of the parent's stack goes on."""
    code = 1
    try:
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]  # threads that are not daemons are waited for
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            if code == -signal.SIGINT:  # an interpreter ends so that its parent sees the signal
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(code & 0xFF)


def call_it(name: str) -> None:
    """As /proc/PID/comm has it; a fork keeps the command line of its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


# --- processes that wait ---------------------------------------------------------------------------------------------
_spare: list[tuple[int, socket.socket]] = []


def _take_spare(count: int) -> None:
    """Fork `count` processes that wait, and have `subprocess` make use of them."""
    _spare.clear()
    for _ in range(count):
        here, there = socket.socketpair()
        pid = fork()
        if pid == 0:
            here.close()
            for _, other in _spare:  # else it would keep them open when this process is killed
                other.close()
            _spare.clear()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            ended_by(lambda end=there: _wait_for_a_module(end))  # type: ignore[misc]
        there.close()
        _spare.append((pid, here))
    subprocess.Popen = WarmPopen  # type: ignore[misc]


def _wait_for_a_module(end: socket.socket) -> int:
    call_it("gnnexp-spare")
    message, streams, _, _ = socket.recv_fds(end, _MESSAGE, 3)
    if not message:
        return 0  # the command has ended, or was killed
    while not message.endswith(b"\n"):
        message += end.recv(_MESSAGE)
    request = json.loads(message)
    for opened, stream in zip(streams, request["streams"], strict=True):
        os.dup2(opened, stream)
    os.closerange(3, _DESCRIPTORS)
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    if request["folder"]:
        os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environment"])
    name, *rest = request["module"]
    call_it(name.rpartition(".")[2])
    _take_spare(2 if name.endswith("side_by_side") else 0)
    sys.modules.pop(name, None)  # as `python -m` does, its text runs as `__main__`
    sys.argv = [name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


class WarmPopen(_Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`, where `python -m gnnexp.…` becomes a process that waits already, as long as there are any."""

    def _execute_child(self, *arguments: Any) -> None:  # noqa: ANN401  all of Popen's own, by position
        given = inspect.signature(_Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        command = given["args"]
        mine = isinstance(command, list) and command[:2] == [sys.executable, "-m"] and "gnnexp" in command[2]
        if not mine or not _spare or given["preexec_fn"] is not None or given["pass_fds"]:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        pid, end = _spare.pop(0)
        streams = {0: given["p2cread"], 1: given["c2pwrite"], 2: given["errwrite"]}
        streams = {stream: opened for stream, opened in streams.items() if opened != -1}
        request = {
            "streams": list(streams),
            "session": given["start_new_session"],
            "group": given["process_group"],
            "folder": given["cwd"] and str(given["cwd"]),
            "module": command[2:],
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "cores": sorted(os.sched_getaffinity(0)),  # a child inherits those of the thread that starts it
        }
        with end:
            socket.send_fds(end, [json.dumps(request).encode() + b"\n"], list(streams.values()))
        self.pid = pid
        self._child_created = True
        close = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in close))  # type: ignore[attr-defined]
