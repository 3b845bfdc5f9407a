"""Triton's kernels compile for GPUs that this machine does not have, without spills, and without atomic operations."""

from __future__ import annotations

import pytest

from gnnexp.ops.backends import has_triton, is_interpreted

pytestmark = pytest.mark.skipif(not has_triton() or is_interpreted(), reason="needs Triton's compiler")
MOST_REGISTERS = 128  # of a thread: 16 warps of a multiprocessor stay resident


def check(kind: str, architecture: int, names: set[str] | None = None) -> None:
    from triton_kernels import variants
    from triton_offline import compiled

    wrong = []
    for one in variants(kind):
        if names is None or one.name in names:
            binary = compiled(one.kernel, one.types(kind), one.constants, architecture, one.num_warps)
            if binary.registers > MOST_REGISTERS or binary.stack or binary.local or "atom" in binary.ptx:
                wrong.append((one.name, binary.registers, binary.stack, binary.local))
            fused = "fma.rn" in binary.ptx
            assert fused or "weighted" not in one.name, f"{one.name} does not multiply and add in one operation"
    assert not wrong


def test_the_main_kernels_compile_for_an_h100() -> None:
    check(
        "fp32",
        90,
        {
            "weighted_sum",
            "weighted_sum_of_stored_rows_in_bf16",
            "sum_and_dot",
            "drop_rows",
            "drop_stored_rows_in_bf16",
            "weigh_and_drop",
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("kind", ["fp32", "fp64"])
def test_all_kernels_compile(kind: str, architecture: int) -> None:
    check(kind, architecture)
