"""The runner of the fuzzers finds what was planted, and does not find what was not."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from combinations import combinations

import gnnexp
from gnnexp.errors import ConfigError, DataError, Problem
from torture.fuzz.case import Case
from torture.fuzz.guard import fire
from torture.fuzz.mutate.raw import PAYLOADS
from torture.fuzz.runner import Limits, Outcome, run_cases, seeds_of

LIMITS = Limits(seconds=1.0, memory_bytes=1 << 30, file_bytes=1 << 20)
WRITES = os.O_WRONLY | os.O_CREAT


def outcomes(
    read: Callable[[], object], folder: Path, *, cases: int = 1, reads_anywhere: bool = False
) -> list[Outcome]:
    """What becomes of some equal cases, each with a file `input`."""

    def kind(random: Random) -> Case:
        return Case("planted", {"input": b"good", "deep/er": b""}, read, reads_anywhere)

    return list(run_cases("planted", kind, iter(range(cases)), 60.0, folder / "cases", LIMITS))


def refuse(error: type[ConfigError] | type[DataError]) -> object:
    raise error(Problem("key", "value", "allowed", "fix"))


def swallow(read: Callable[[], object]) -> Callable[[], object]:
    """As a reader with an `except` that is too wide."""

    def call() -> object:
        try:
            return read()
        except BaseException:
            return None

    return call


def end_own_child() -> None:
    """As gnnexp ends `squeue` with what it has started."""
    checkout = str(Path(gnnexp.__path__[0]).parent)
    asks = ["git", "-C", checkout, "cat-file", "--batch"]
    child = subprocess.Popen(asks, stdin=subprocess.PIPE, start_new_session=True)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


HARMLESS: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: None, "accepted"),
    "reads its file": (lambda: Path("input").read_bytes(), "accepted"),
    "writes below its folder": (lambda: Path("output").write_text("x"), "accepted"),
    "a temporary folder": (lambda: __import__("tempfile").TemporaryDirectory().cleanup(), "accepted"),
    "reads numpy": (lambda: Path(np.__file__).read_bytes(), "accepted"),
    "ends its own child": (end_own_child, "accepted"),
    "a problem of the configuration": (lambda: refuse(ConfigError), "refused"),
    "a problem of the data": (lambda: refuse(DataError), "refused"),
}
EXECUTES: dict[str, Callable[[], object]] = {
    "a payload": fire,
    "a pickle": lambda: pickle.loads(PAYLOADS[0]),
    "a shell": lambda: os.system("touch executed"),
    "a program": lambda: subprocess.run(["true"], check=True),
    "a repository of somebody else": lambda: subprocess.run(["git", "-C", ".", "status"], check=False),
    "another process": os.fork,
    "a signal": lambda: os.kill(os.getppid(), 0),
    "a signal to a group": lambda: os.killpg(os.getpgid(os.getppid()), 0),
    "a connection": lambda: socket.create_connection(("127.0.0.1", 9)),
}
ESCAPES: dict[str, Callable[[], object]] = {
    "beside": lambda: Path("../escaped").write_text("x"),
    "above": lambda: os.open("../../escaped", WRITES),
    "absolute": lambda: Path("/tmp/torture-escaped").write_text("x"),
    "by a link": lambda: (Path("link").symlink_to("/etc/passwd"), Path("link").read_bytes()),
    "reading": lambda: Path("/etc/passwd").read_bytes(),
    "a folder": lambda: Path("../escaped").mkdir(),
    "removing": lambda: Path("/etc/passwd-escaped").unlink(missing_ok=True),
    "renaming": lambda: Path("input").rename("../escaped"),
}
PLANTED: dict[str, tuple[Callable[[], object], str]] = {
    "traceback": (lambda: {}["key"], "traceback"),
    "our own assertion": (lambda: (_ for _ in ()).throw(AssertionError("a graph was accepted")), "traceback"),
    "an exit": (lambda: sys.exit(2), "traceback"),
    "a signal to itself": (os.abort, "crash"),
    "an end without a word": (lambda: os._exit(0), "crash"),
    "too much memory": (lambda: np.ones(1 << 29), "memory"),
    "too much memory of torch": (lambda: __import__("torch").ones(1 << 30), "memory"),
    "a file without end": (lambda: Path("big").write_bytes(bytes(2 << 20)), "traceback"),
    "sleeping": (lambda: time.sleep(1000), "hang"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_readers_may_do(name: str, tmp_path: Path) -> None:
    read, expected = HARMLESS[name]
    assert [one.name for one in outcomes(read, tmp_path, cases=2)] == [expected] * 2


@pytest.mark.parametrize(
    ("name", "swallowed"),
    combinations(
        EXECUTES, [False, True], quick=lambda name, swallowed: swallowed or name in ("a payload", "a program")
    ),
)
def test_what_executes_is_noticed_and_does_not_happen(name: str, swallowed: bool, tmp_path: Path) -> None:
    read = swallow(EXECUTES[name]) if swallowed else EXECUTES[name]
    assert [one.name for one in outcomes(read, tmp_path, reads_anywhere=True)] == ["executed"]
    assert not list(tmp_path.rglob("executed"))


@pytest.mark.parametrize(
    ("name", "swallowed"),
    combinations(ESCAPES, [False, True], quick=lambda name, swallowed: swallowed or name in ("beside", "reading")),
)
def test_what_escapes_is_noticed_and_does_not_happen(name: str, swallowed: bool, tmp_path: Path) -> None:
    read = swallow(ESCAPES[name]) if swallowed else ESCAPES[name]
    assert [one.name for one in outcomes(read, tmp_path)] == ["escaped"]
    assert not list(tmp_path.rglob("escaped")) and not Path("/tmp/torture-escaped").exists()


def test_an_escape_that_no_audit_hook_sees(tmp_path: Path) -> None:
    """Native code opens files without asking Python; what it leaves lies around."""
    import ctypes

    libc = ctypes.CDLL(None)
    found = outcomes(lambda: libc.creat(b"../escaped", 0o600), tmp_path, cases=2)
    assert [one.name for one in found] == ["escaped"] * 2 and "above/place/escaped" in found[0].what


def test_what_a_user_types_may_name_any_file_to_read(tmp_path: Path) -> None:
    assert outcomes(ESCAPES["reading"], tmp_path, reads_anywhere=True)[0].name == "accepted"
    assert outcomes(ESCAPES["absolute"], tmp_path, reads_anywhere=True)[0].name == "escaped"


@pytest.mark.parametrize("name", PLANTED)
def test_planted_failures_are_counted_and_the_next_case_goes_on(name: str, tmp_path: Path) -> None:
    read, expected = PLANTED[name]
    found = outcomes(read, tmp_path, cases=2)
    assert [one.name for one in found] == [expected] * 2 and [one.seed for one in found] == [0, 1]


def test_a_loop_hangs(tmp_path: Path) -> None:
    def loop() -> None:
        while True:
            pass

    assert [one.name for one in outcomes(loop, tmp_path)] == ["hang"]


def test_a_seed_makes_the_same_case_again(tmp_path: Path) -> None:
    def kind(random: Random) -> Case:
        number = random.random()
        return Case(f"{number}", {}, lambda: None)

    seeds = seeds_of("k", 7)
    first = [next(seeds) for _ in range(5)]
    found = [list(run_cases("k", kind, iter(first), 60.0, tmp_path / str(turn), LIMITS)) for turn in range(2)]
    assert found[0] == found[1] and len({one.what for one in found[0]}) == 5
    alone = list(run_cases("k", kind, iter(first[3:4]), 60.0, tmp_path / "alone", LIMITS))
    assert alone == found[0][3:4]
    assert json.dumps(first)  # plain numbers, to be typed again


def test_a_fuzzer_that_fails_itself_says_so(tmp_path: Path) -> None:
    def kind(random: Random) -> Case:
        raise KeyError("planted")

    with pytest.raises(AssertionError, match=r"(?s)fuzzer itself failed at seed 3:.*planted"):
        list(run_cases("k", kind, iter([3]), 60.0, tmp_path / "cases", LIMITS))
