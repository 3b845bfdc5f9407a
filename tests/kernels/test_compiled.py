"""Processes that compile versions of a kernel at the same time: none is lost, none is taken for another."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnnexp.kernels import compiled as compiling

MODULE = """
import sys
from numba import types
from gnnexp.kernels.compiled import compiled

@compiled(nogil=True)
def add(x, number):
    return x + number

if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        add.compile((types.int64, types.IntegerLiteral(number)))
"""
# numba first compiles the inner function for any integer, and then is asked for a literal.
LITERAL = """
import gc
import weakref

import numba
import numpy as np
from numba import types
from gnnexp.kernels.compiled import compiled

@numba.njit
def scaled(x, number):
    return x[0] * numba.literally(number)

@compiled(nogil=True)
def shifted(x, number):
    return scaled(x, number) + 1

def call():
    x = np.zeros(10)
    shifted.compile((types.float64[::1], types.IntegerLiteral(3)))
    return weakref.ref(x)

gc.disable()
print(call()() is None)
"""


def _versions(folder: Path) -> dict[int, int]:
    """By the literal that it is listed for: the literal that the code was compiled for."""
    (index,) = folder.rglob("*.nbi")
    with index.open("rb") as file:
        pickle.load(file)  # numba's version
        _, overloads = pickle.loads(file.read())
    found = {}
    for (signature, *_), name in overloads.items():
        parts = pickle.loads((index.parent / name).read_bytes())
        (saved,) = (part for part in parts if hasattr(part, "args") and hasattr(part, "return_type"))
        found[signature[1].literal_value] = saved.args[1].literal_value
    return found


@pytest.mark.interpreter
@pytest.mark.slow
def test_versions_saved_at_once_are_kept_apart(tmp_path):
    (tmp_path / "adding.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    numbers = list(range(24))
    # All processes compile all versions, each in another order.
    going = [
        subprocess.Popen(
            [sys.executable, "adding.py", *map(str, numbers[first:] + numbers[:first])], cwd=tmp_path, env=environment
        )
        for first in (0, 6, 12, 18)
    ]
    assert [process.wait(120) for process in going] == [0, 0, 0, 0]
    assert _versions(tmp_path / "cache") == {number: number for number in numbers}
    data = list((tmp_path / "cache").rglob("*.nbc"))
    assert len(data) == len(numbers), "compiled once, read by the other processes"


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_process_says_once_that_it_compiles_and_nothing_if_it_loads(tmp_path: Path) -> None:
    (tmp_path / "adding.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "adding.py", "1", "2", "3"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stderr
        for _ in range(2)
    ]
    assert said[0].count("compiling kernels at their first use") == 1
    assert said[1] == ""


HOLD = """
import sys
from pathlib import Path
from gnnexp.kernels.compiled import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def _held_by_another(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of `file` until it is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


@pytest.mark.interpreter
def test_nobody_waits_for_a_frozen_process_that_compiles(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compiling, "_FROZEN_S", 0.5)
    file = tmp_path / "turn0.lock"
    with _held_by_another(file) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        with compiling.locked(file) as alone:
            assert not alone
    assert f"process {holder.pid} holds it" in caplog.text
    with compiling.locked(file) as alone:
        assert alone, "the lock of a process that has died is free"


@pytest.mark.interpreter
def test_a_process_of_another_machine_is_given_minutes(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compiling, "_FROZEN_S", 0.0)
    monkeypatch.setattr(compiling, "_UNSEEN_S", 0.3)
    file = tmp_path / "turn0.lock"
    with _held_by_another(file):
        file.write_text("elsewhere 1")
        with compiling.locked(file) as alone:
            assert not alone
    assert "another machine holds it" in caplog.text


@pytest.mark.interpreter
def test_a_version_compiled_without_the_lock_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_FROZEN_S", 0.5)
    (tmp_path / "adding.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    adding = pytest.importorskip("adding")
    folder = Path(adding.add._cache.cache_path)
    with _held_by_another(folder / "saving.lock") as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        assert adding.add(1, 2) == 3
        assert not list(folder.glob("*.nbi"))
    assert adding.add(1.0, 2) == 3.0
    assert list(folder.glob("*.nbi")), "the next version is saved again"


@pytest.mark.interpreter
def test_arrays_of_a_call_that_compiles_are_freed_when_it_ends(tmp_path: Path) -> None:
    """Else they would count as memory of a later step, see the finding that the module names."""
    (tmp_path / "scaling.py").write_text(LITERAL)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "scaling.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
    assert "compiling kernels" in done.stderr
