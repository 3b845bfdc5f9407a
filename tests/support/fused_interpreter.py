"""Whether Triton's interpreter rounds as its compiler does."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from gnnexp.ops.backends import has_triton

# Until 3.8, the interpreter rounds twice in `tl.fma`; the compiler and numba's kernels round once.
_FIRST = (3, 9)


def _rounds_once() -> bool:
    try:
        major, minor = map(int, version("triton").split(".")[:2])
    except PackageNotFoundError:
        return False
    return has_triton() and (major, minor) >= _FIRST


needs_fused_interpreter = pytest.mark.skipif(
    not _rounds_once(), reason="needs Triton 3.9 or later: the interpreter of earlier ones rounds twice in tl.fma"
)
