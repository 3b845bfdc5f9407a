"""Run the kernels of `kernels.cuda.sample` in Triton's interpreter on random cases: `... NUMBER...`.

Triton decides at its import whether it interprets kernels. So this is a process of its own, with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import sys

from device_blocks import check, check_remote, check_split, random_case
from triton.runtime.interpreter import InterpretedFunction

from gnnexp.kernels.cuda import sample


def _main(*numbers: int) -> None:
    assert isinstance(sample.draw_kernel, InterpretedFunction)
    for number in numbers:
        try:
            check(random_case(number), sample)
            check_split(number, sample)
            check_remote(number, sample)
        except BaseException:
            print(f"case {number}")
            raise
    print(f"{len(numbers)} cases are equal")


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
