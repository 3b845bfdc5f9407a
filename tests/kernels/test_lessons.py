"""What one process says of its kernels, another one loads: from the cache, and without a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from gnnexp.kernels.lessons import load_kernels, loaded_kernels
from gnnexp.kernels.rows.gather import gather_rows
from gnnexp.kernels.rows.rowkernel import boundaries

GATHER, BOUNDARIES = "gnnexp.kernels.rows.gather", "gnnexp.kernels.rows.rowkernel:boundaries"
# What a rank of another process does with it.
LEARN = """
import json, os, sys
from gnnexp.kernels.lessons import load_kernels, loaded_kernels
lesson = json.loads(sys.stdin.read())
print(load_kernels(lesson), load_kernels(lesson), len(os.listdir("/proc/self/task")))
print(json.dumps(loaded_kernels()))
"""


@pytest.mark.interpreter
@pytest.mark.slow
def test_another_process_loads_the_same_kernels_and_starts_no_thread() -> None:
    rows = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    gather_rows(rows, torch.tensor([2, 0]))
    boundaries(np.array([0, 2, 5]), 2)
    said = loaded_kernels()
    assert said[BOUNDARIES] and any(name.startswith(GATHER) for name in said)
    assert not any(name.endswith("_all_ranges") for name in said), "loading a parallel loop starts numba's threads"
    lesson = {name: said[name] for name in said if name == BOUNDARIES or name.startswith(GATHER)}
    done = subprocess.run(
        [sys.executable, "-c", LEARN],
        input=json.dumps(lesson),
        text=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    counts, known = done.stdout.splitlines()
    assert counts.split() == [str(sum(map(len, lesson.values()))), "0", "1"]
    assert {name: set(found) for name, found in json.loads(known).items()} == {
        name: set(found) for name, found in lesson.items()
    }


def test_what_the_cache_does_not_have_is_not_loaded() -> None:
    assert load_kernels({BOUNDARIES: ["(a signature of another version)"], f"{GATHER}:gone": ["(int64,)"]}) == 0
