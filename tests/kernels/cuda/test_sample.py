"""Triton's sampling kernels: interpreted, their blocks are those of the CPU; compiled, they fit into registers.

Two small cases that are interpreted are in `test_sample_interpreted.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gnnexp.ops.backends import is_interpreted

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(is_interpreted(), reason="starts processes of its own that interpret; compiles here")

SUPPORT = Path(__file__).parents[2] / "support"


def interpreted(*numbers: int) -> str:
    """What `interpreted_sampling` prints."""
    done = subprocess.run(
        [sys.executable, SUPPORT / "interpreted_sampling.py", *map(str, numbers)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SUPPORT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.interpreter
def test_interpreted_kernels_make_the_blocks_of_the_cpu_on_60_graphs() -> None:
    """Case 6 k + r has the r-th combination of options."""
    assert interpreted(*range(1006, 1066)) == "60 cases are equal\n"


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("first", range(6, 1006, 250))
@pytest.mark.interpreter
def test_interpreted_kernels_make_the_blocks_of_the_cpu_on_1000_graphs(first: int) -> None:
    assert interpreted(*range(first, first + 250)) == "250 cases are equal\n"


def resources(file: Path, kernel: str, types: dict[str, str], capability: int, **constants: object) -> dict[str, int]:
    """Registers, stack and local bytes of a kernel that is compiled for a GPU of this capability, without a GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gnnexp.kernels.cuda import sample

    types = {**types, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(fn=getattr(sample, kernel), signature=types, constexprs=constants)
    file.write_bytes(triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    told = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True)
    return {name: int(amount) for name, amount in re.findall(r"(REG|STACK|LOCAL):(\d+)", told.stdout)}


LONG, INT = "*i64", "*i32"
DRAW = {
    "indptr": LONG,
    "indices": INT,
    "names": INT,
    "vertices": INT,
    "count": LONG,
    "keys": LONG,
    "step": "i32",
    "bounds": LONG,
    "neighbours": INT,
    "positions": LONG,
}
OTHERS = {
    "count_kernel": {
        "indptr": LONG,
        "vertices": INT,
        "count": LONG,
        "lengths": LONG,
        "size": "i32",
        "fanout": "i32",
        "loops": "i32",
    },
    "number_kernel": {"neighbours": INT, "total": LONG, "table": INT, "most": "i32"},
    "first_kernel": {"neighbours": INT, "total": LONG, "table": INT, "most": "i32", "flags": INT, "size": "i32"},
    "place_kernel": {
        "neighbours": INT,
        "total": LONG,
        "table": INT,
        "most": "i32",
        "ranks": INT,
        "count": LONG,
        "known": LONG,
        "sources": INT,
        "vertices": INT,
        "size": "i32",
    },
    "take_kernel": {"values": INT, "positions": LONG, "taken": INT, "size": "i32"},
}


def assert_fits(found: dict[str, int]) -> None:
    assert found["REG"] <= 128 and found["STACK"] == found["LOCAL"] == 0, found


@pytest.mark.parametrize(
    "fanout",
    [5, *(pytest.param(fanout, marks=pytest.mark.slow) for fanout in (1, 15, 32, 64, 100, 256, 512, 1024, 2048))],
)
@pytest.mark.parametrize("capability", [80, 90])
def test_draws_of_a_tile_stay_in_registers(tmp_path: Path, fanout: int, capability: int) -> None:
    from gnnexp.kernels.cuda.sample import tile_of_draws

    slots, rows = tile_of_draws(fanout)
    for wanted in (True, False):
        assert_fits(
            resources(
                tmp_path / "cubin",
                "draw_kernel",
                DRAW,
                capability,
                FANOUT=fanout,
                LOOPS=wanted,
                NAMED=wanted,
                PLACED=wanted,
                SLOTS=slots,
                ROWS=rows,
            )
        )


@pytest.mark.parametrize("kernel", OTHERS)
@pytest.mark.parametrize("capability", [80, 90])
def test_other_kernels_stay_in_registers(tmp_path: Path, kernel: str, capability: int) -> None:
    constants = {"ROWS" if kernel == "count_kernel" else "EDGES": 512}
    if kernel == "take_kernel":
        constants["MISSING"] = -1
    assert_fits(resources(tmp_path / "cubin", kernel, OTHERS[kernel], capability, **constants))


@pytest.mark.parametrize(("kind", "missing"), [("*i64", -1), ("*fp32", 1)])
@pytest.mark.parametrize("capability", [80, 90])
def test_data_of_edges_of_any_type_is_taken_in_registers(
    tmp_path: Path, kind: str, missing: int, capability: int
) -> None:
    types = {**OTHERS["take_kernel"], "values": kind, "taken": kind}
    assert_fits(resources(tmp_path / "cubin", "take_kernel", types, capability, EDGES=512, MISSING=missing))
