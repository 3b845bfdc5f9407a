"""Processes that compile versions of a kernel at the same time: none is lost, none is taken for another."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

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


def test_versions_saved_at_once_are_kept_apart(tmp_path):
    (tmp_path / "adding.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    numbers = list(range(24))
    # All processes compile all versions, each in another order.
    going = [subprocess.Popen([sys.executable, "adding.py", *map(str, numbers[first:] + numbers[:first])],
                              cwd=tmp_path, env=environment) for first in (0, 6, 12, 18)]
    assert [process.wait(120) for process in going] == [0, 0, 0, 0]
    assert _versions(tmp_path / "cache") == {number: number for number in numbers}
    data = list((tmp_path / "cache").rglob("*.nbc"))
    assert len(data) == len(numbers), "compiled once, read by the other processes"
