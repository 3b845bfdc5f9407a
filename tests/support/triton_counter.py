"""A kernel that calls every function of `gnnexp.kernels.cuda.counter`."""

import triton
import triton.language as tl

from gnnexp.kernels.cuda.counter import absorb, bounded, draw, mix64


@triton.jit
def words_kernel(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i).to(tl.uint64), tl.load(b + i).to(tl.uint64)
    tl.store(out + i, mix64(x).to(tl.int64))
    tl.store(out + N + i, absorb(x, y).to(tl.int64))
    tl.store(out + 2 * N + i, draw(x, y).to(tl.int64))
    tl.store(out + 3 * N + i, bounded(x, y & 0xFFFFFFFF).to(tl.int64))
