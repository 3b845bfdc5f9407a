"""A disk that has room for small files only, as the system tells it: writing beyond fails in the middle of a file."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond `num_bytes` for a while (EFBIG; Python ignores SIGXFSZ).

    What is run meanwhile should have run before: numba keeps compiled kernels in files.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
