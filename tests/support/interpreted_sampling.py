"""Run the kernels of `kernels.cuda.sample` in Triton's interpreter on random cases: `... NUMBER...`.

Half of the cases read data of edges as from host memory.

Triton decides at its import whether it interprets kernels. So this is a process of its own, with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import sys

import torch
from device_blocks import check, check_remote, check_split, random_case
from triton.runtime.interpreter import InterpretedFunction

from gnnexp.kernels.cuda import sample


def check_case(number: int) -> None:
    """The interpreted kernels make the blocks of the CPU for this case.

    Raises:
        AssertionError: they do not.
    """
    assert isinstance(sample.draw_kernel, InterpretedFunction)
    pin = torch.Tensor.clone if number // 3 % 2 else None  # as if data of edges were in host memory
    check(random_case(number), sample, pin=pin)
    check_split(number, sample, pin=pin)
    check_remote(number, sample, pin=pin)


def _main(*numbers: int) -> None:
    for number in numbers:
        try:
            check_case(number)
        except BaseException:
            print(f"case {number}")
            raise
    print(f"{len(numbers)} cases are equal")


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
