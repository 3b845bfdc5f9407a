"""Runs the tests of Triton's kernels in a process that interprets them.

Triton reads TRITON_INTERPRET=1 once, at its import. In one process with other tests, the order of imports would decide
what is tested, and the tests of the compiler would fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fused_interpreter import needs_fused_interpreter

_ROOT = Path(__file__).parents[2]
pytestmark = needs_fused_interpreter


def interpreted(*words: str) -> str:
    """What pytest prints for these tests; they must pass."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *words],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # `make test-emulated-gpu` compares the same kernels
@pytest.mark.interpreter
def test_interpreted_kernels_have_the_results_of_numba() -> None:
    assert " passed" in interpreted("tests/kernels/cuda")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.interpreter
def test_interpreted_kernels_keep_the_contract_of_a_backend() -> None:
    assert " passed" in interpreted("tests/ops/test_backend.py", "-k", "triton or same_masks", "--timeout", "1800")
