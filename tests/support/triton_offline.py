"""Compiles Triton kernels for GPUs that this machine does not have, and reads what the binaries need."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Binary:
    """What a compiled kernel needs: registers of a thread, and bytes of a thread's stack and local memory (spills)."""

    registers: int
    stack: int
    local: int
    ptx: str


def compiled(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], architecture: int, num_warps: int
) -> Binary:
    """Compile for `sm_<architecture>`.

    Args:
        kernel: a function with `@triton.jit`, in a process without TRITON_INTERPRET.
        types: Triton type of every argument without a value in `constants`; strides and widths are multiples of 16.
        constants: values of compile-time constants, None for arguments that are left out.
        architecture: 80 or 90.
        num_warps: warps of a program.
    """
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    whole = {
        (i,): [["tt.divisibility", 16]]
        for i, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.endswith(("stride", "width"))
    }
    source = ASTSource(kernel, signature, {**constants}, whole)
    made = triton.compile(
        source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": num_warps, "enable_fp_fusion": False}
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        words = subprocess.run(
            [_CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", words)}
    return Binary(found["REG"], found["STACK"], found["LOCAL"], made.asm["ptx"])
