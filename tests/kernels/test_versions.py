"""The versions of kernels that set-up compiles: text and types are one, and the first commands need no other."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from first_kernels import execute, in_cache

from gnnexp.kernels.versions import Version, pieces, read_versions, signature, text, write
from gnnexp.kernels.warmup import FIRST


def python_function(version: Version) -> object:
    found = getattr(importlib.import_module(version.module), version.kernel.rpartition(".")[2])
    return getattr(found, "kernel", found).py_func


@pytest.mark.parametrize(
    "types",
    [
        "int64 =272 bool",
        "uint8[1Cr] float32[2A] float64",
        "int64 (int64[1C] bool (uint32 float32)) int64",
    ],
)
def test_types_become_text_again(types: str) -> None:
    assert " ".join(map(text, signature(types))) == types


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "some.csv", versions := read_versions(FIRST))
    assert (tmp_path / "some.csv").read_bytes() == FIRST.read_bytes()
    assert read_versions(tmp_path / "some.csv") == versions


def test_the_first_commands_use_kernels_that_exist() -> None:
    """After a change of arguments, `python tests/support/first_kernels.py` writes the list again."""
    for version in read_versions(FIRST):
        assert len(inspect.signature(python_function(version)).parameters) == len(signature(version.types)), version


def test_kernels_of_a_module_are_in_one_piece_but_slow_ones() -> None:
    slow = [Version(f"gnnexp.kernels.rows.aggregate.{name}", "int64") for name in "ab"]
    others = [Version(f"gnnexp.kernels.graph.edges.{name}", "int64") for name in "ab"]
    assert pieces([*others, *slow]) == [[slow[0]], [slow[1]], others]


@pytest.mark.slow
def test_the_first_commands_compile_nothing_after_set_up(tmp_path: Path) -> None:
    """Counted in numba's cache, which has a file per compiled version."""
    cache = tmp_path / "kernels"
    subprocess.run(
        [sys.executable, "-m", "gnnexp.kernels.warmup"], check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    )
    assert in_cache(cache) == read_versions(FIRST)
    execute(tmp_path, cache)
    assert in_cache(cache) == read_versions(FIRST)
