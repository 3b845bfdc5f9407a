"""`python -m gnnexp…` of a test without the seconds of importing: a fork of one process that has imported everything.

`subprocess.Popen` asks this process (the source) for a fork. Parent, pipes, session, environment, working folder,
command line and kills are those of a real interpreter. A command that is a fork has a source of its own, forked before
the command does anything, because it may itself start `python -m gnnexp…`. Tests about interpreters, imports and their
variables have the mark `interpreter`: they get real ones, and no other test may start one.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import inspect
import io
import json
import os
import random
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.processes.warm import call_it, ended_by, fork, preload

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_MESSAGE = 1 << 20
_DESCRIPTORS = 1024  # more than any process here has open
_PROGRAMS = ("gnnexp", "gnnexp.cli.sweeping.side_by_side")  # they start processes
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
_PROGRAM = f"""
import sys
sys.path[:0] = {[str(folder) for folder in (Path(__file__).parent, Path(__file__).parents[2])]}
import warm_forks
del sys.path[:2]
warm_forks.main()
"""
_ROOT = Path(__file__).parents[2]
_ROOM = "." * 4096  # for the command lines of forks
# The source starts no threads. Ranks set those of their first one themselves; OpenMP gives others what it read first.
_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "omp",
    "OMP_WAIT_POLICY": "passive",
}
# Variables that Python and libraries read when they start. A command with others needs an interpreter of its own.
_READ_AT_START = ("PYTHON", "LD_", "TRITON_", "MPL", "CUDA_", "NUMBA_DISABLE", "GNNEXP_WITHOUT", "GNNEXP_EMULATED")
_FOLLOWED = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER")
# What changes an interpreter's start, or is another gnnexp, in a folder of PYTHONPATH.
_CHANGING = ("sitecustomize.py", "usercustomize.py", "gnnexp")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
_Popen = subprocess.Popen


@dataclass
class Source:
    """The process that forks, as the process that asks knows it.

    Attributes:
        end: our end of its socket.
        owner: who may ask: the parent of what it forks.
        variables: what it has imported everything with.
    """

    end: socket.socket
    owner: int
    variables: Mapping[str, str]


class WarmPopen(_Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`, where `python -m gnnexp…` becomes a fork of the source.

    Attributes:
        source: of this process; None before the first such command.
        wanted: whether forks are wanted: a test may need interpreters.
        variables: the environment of the first source, before any test changes it.
        interpreters: commands of this process that real interpreters were started for.
        one_at_a_time: so that a new child of this process is known to be the one that was asked for.
    """

    source: Source | None = None
    wanted = True
    variables: Mapping[str, str] = dict(os.environ)
    interpreters: list[Sequence[str]] = []  # noqa: RUF012  of the class, as a count of this process
    one_at_a_time = threading.Lock()

    def _execute_child(self, *arguments: Any) -> None:
        given = inspect.signature(_Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        command = given["args"]
        is_python = isinstance(command, (list, tuple)) and str(command[0]) in {sys.executable, _SCRIPT}
        if not (is_python and _can_fork(given)):
            if is_python:
                self.interpreters.append(command)
            with self.one_at_a_time:
                super()._execute_child(*arguments)  # type: ignore[misc]
            return
        source = source_of_this_process()
        streams = [
            given[name] if given[name] != -1 else standard
            for standard, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        with self.one_at_a_time:
            self.pid = _ask(source, _request(given), streams)
        self._child_created = True
        ours = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ours))  # type: ignore[attr-defined]


_SCRIPT = str(Path(sys.executable).with_name("gnnexp"))


def _can_fork(given: Mapping[str, Any]) -> bool:
    command, variables = given["args"], os.environ if given["env"] is None else given["env"]
    is_ours = command[1:2] == ["-m"] and str(command[2]).split(".")[0] == "gnnexp"
    # A fork of a fork that did not ask for a source (a rank) is no parent of what the source forks.
    mine = WarmPopen.source is None or WarmPopen.source.owner == os.getpid()
    plain = given["preexec_fn"] is None and not given["pass_fds"] and given["uid"] is given["gid"] is None and mine
    known = WarmPopen.variables if WarmPopen.source is None else WarmPopen.source.variables
    return WarmPopen.wanted and is_ours and plain and _read_at_start(variables) == _read_at_start(known)


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    """What Python and libraries read of an environment when they start; folders only if these change what is there."""
    read = {
        name: value for name, value in variables.items() if name.startswith(_READ_AT_START) and name not in _FOLLOWED
    }
    changing = [
        folder
        for folder in _folders(variables)
        if folder != _ROOT and any((folder / name).exists() for name in _CHANGING)
    ]
    return read | {"PYTHONPATH": str(changing)}


def _folders(variables: Mapping[str, str]) -> list[Path]:
    return [Path(folder) for folder in variables.get("PYTHONPATH", "").split(os.pathsep) if folder]


def _request(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a new process takes over from the one that starts it, or gets instead."""
    return {
        "command": [str(word) for word in given["args"]],
        "folder": str(given["cwd"] or os.getcwd()),  # noqa: PTH109
        "environment": dict(os.environ if given["env"] is None else given["env"]),
        "session": given["start_new_session"],
        "group": os.getpgrp() if given["process_group"] in {None, -1} else given["process_group"],
        "cores": sorted(os.sched_getaffinity(0)),
        "umask": _umask(),
        "limits": [resource.getrlimit(limit) for limit in _LIMITS],
        "deaf": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }


def _umask() -> int:
    return int(Path("/proc/self/status").read_text(encoding="utf-8").partition("Umask:")[2].split()[0], 8)


def _ask(source: Source, request: Mapping[str, Any], streams: Sequence[int]) -> int:
    """Have the source fork; the process id of the new child of this process."""
    with _adopting() as asked_for:
        message = json.dumps(request).encode() + b"\n"
        socket.send_fds(source.end, [message], list(streams))
        answer = source.end.recv(64)
        if not answer:
            raise RuntimeError("the source of warm forks has died")
        asked_for.add(int(answer))
    return int(answer)


@contextmanager
def _adopting() -> Iterator[set[int]]:
    """While this lasts, a process below this one whose parent ends becomes a child of this one.

    So may one that has nothing to do with the fork: what a test has detached. Nobody waits for that one, so we do.
    """
    libc, before = ctypes.CDLL(None), _children()
    asked_for: set[int] = set()
    was = ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield asked_for
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)
        for stray in _children() - before - asked_for:
            threading.Thread(target=os.waitpid, args=(stray, 0), name="warm-stray", daemon=True).start()


def _children() -> set[int]:
    """Of all threads of this process; ended ones too, until somebody has waited for them."""
    found: set[int] = set()
    for one in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile: its children are another's
            found |= {int(pid) for pid in one.read_text(encoding="utf-8").split()}
    return found


# --- the source ------------------------------------------------------------------------------------------------------
def source_of_this_process() -> Source:
    """Start it as an interpreter that imports everything, if there is none yet."""
    if WarmPopen.source is None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), _ROOM]
            _Popen(
                command, env={**WarmPopen.variables, **_THREADS}, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        WarmPopen.source = Source(ours, os.getpid(), WarmPopen.variables)
    return WarmPopen.source


def _fork_a_source() -> None:
    """For a fork that will start processes: its own source, before it has pipes and threads."""
    assert WarmPopen.source is None or WarmPopen.source.owner != os.getpid()
    ours, theirs = socket.socketpair()
    if fork() == 0:
        ours.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        ended_by(lambda: _serve(theirs))
    theirs.close()
    WarmPopen.source = Source(ours, os.getpid(), dict(os.environ))
    subprocess.Popen = WarmPopen  # type: ignore[misc]


def _serve(end: socket.socket) -> int:
    """Fork for every request, until whoever asks has ended."""
    call_it("warm-source")
    # Those of its group are not for it. A fork gets its own as soon as it can answer them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS[:-1])
    while True:
        message, streams, _, _ = socket.recv_fds(end, _MESSAGE, 3)
        if not message:
            return 0
        while not message.endswith(b"\n"):
            message += end.recv(_MESSAGE)
        end.sendall(b"%d" % _fork_twice(end, json.loads(message), streams))
        for stream in streams:
            os.close(stream)


def _fork_twice(end: socket.socket, request: Mapping[str, Any], streams: Sequence[int]) -> int:
    """The child of a child, whose parent is who asks as soon as ours has ended. It waits until then."""
    read_pid, write_pid = os.pipe()
    goes, starts = os.pipe()
    between = fork()
    if between == 0:
        os.close(starts)
        pid = fork()
        if pid == 0:
            end.close()
            os.read(goes, 1)  # ends when nobody can write
            ended_by(lambda: _become(request, streams))
        os.write(write_pid, b"%d" % pid)
        os._exit(0)
    pid = int(os.read(read_pid, 64))
    os.waitpid(between, 0)
    for opened in (read_pid, write_pid, goes, starts):
        os.close(opened)
    return pid


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> int:
    """What `python -m MODULE` does, in this fork."""
    for stream, opened in enumerate(streams):
        os.dup2(opened, stream)
    os.closerange(3, _DESCRIPTORS)
    _take_over(request)
    _, _, name, *rest = request["command"]
    _write_command_line(request["command"])
    call_it(name.rpartition(".")[2])
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    WarmPopen.source = None
    if name in _PROGRAMS:
        _fork_a_source()
    sys.modules.pop(name, None)  # as `python -m` does, its text runs as `__main__`
    theirs = {str(folder) for folder in _folders(WarmPopen.variables)}
    sys.path[:] = [
        os.getcwd(),  # noqa: PTH109
        *map(str, _folders(os.environ)),
        *(folder for folder in sys.path[1:] if folder not in theirs),
    ]
    sys.argv = [name, *rest]
    sys.orig_argv[:] = request["command"]
    _open_streams()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


def _take_over(request: Mapping[str, Any]) -> None:
    """Session, folder, limits, variables and signals, as a new interpreter has them."""
    if request["session"]:
        os.setsid()
    else:
        os.setpgid(0, request["group"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    os.umask(request["umask"])
    for limit, values in zip(_LIMITS, request["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    os.environ.clear()
    os.environ.update(request["environment"])
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["deaf"] else signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _read_numbers_of_threads()


def _read_numbers_of_threads() -> None:
    """What OpenMP and numba read of the environment when they are loaded. No thread of theirs has started."""
    numba = sys.modules["numba.core.config"]
    numba.reload_config()
    sys.modules["numba.np.ufunc.parallel"].NUM_THREADS = numba.NUMBA_NUM_THREADS  # how many it will start
    threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or len(os.sched_getaffinity(0))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    for library in {line.split()[-1] for line in maps.splitlines() if "libgomp" in line}:
        ctypes.CDLL(library).omp_set_num_threads(threads)


def _open_streams() -> None:
    """Python's streams, on what is now behind their numbers."""
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            open(stream, "wb", 0 if unbuffered else -1, closefd=False),  # noqa: SIM115
            errors=errors,
            line_buffering=stream == 2 or os.isatty(stream),
            write_through=unbuffered,
        )
        for stream, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _write_command_line(words: Sequence[str]) -> None:
    """As `ps` and /proc/PID/cmdline show it, in the place of the source's own words (as setproctitle does)."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    first, last = int(fields[45]), int(fields[46])
    line = " ".join(words).encode()[: last - first - 2] + b"\0"
    ctypes.memmove(first, line.ljust(last - first, b"."), last - first)  # Linux reads to the end of the first text


def main() -> None:
    """A source, by the number of its socket."""
    number = int(sys.argv[1])
    preload()
    gc.collect()
    gc.freeze()  # else the first collection in a fork writes to all pages of objects, and so copies them
    ended_by(lambda: _serve(socket.socket(fileno=number)))
