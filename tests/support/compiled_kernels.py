"""Kernels that tests compile: none. `make test` compiles what `kernels.csv` lists before, on all cores.

Other versions are printed as lines for the list, and more than `MOST` of them fail the session. A few depend on the
order of tests (seen: versions of `rowkernel._all_ranges`). After a change of many versions, `python
tests/support/compiled_kernels.py` in a fresh clone, after its `make test`, writes the list again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gnnexp

if TYPE_CHECKING:
    from gnnexp.kernels.versions import Version

LIST = Path(__file__).with_name("kernels.csv")
PACKAGE = Path(gnnexp.__file__).parent
MOST = 20
# Whether versions that are not listed fail the session. Other settings (`make test-slow`) may need others.
STRICT = "GNNEXP_LISTED_KERNELS"


class CompiledKernels:
    """Compares what is in numba's cache before and after a session."""

    def __init__(self) -> None:
        self._strict = bool(os.environ.pop(STRICT, ""))
        self._before: set[Version] = set()
        self._new: list[Version] = []

    def pytest_sessionstart(self) -> None:
        """What is there."""
        self._before = set(in_the_cache()) if self._strict else set()

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A failure, if there is much more now."""
        if not self._strict:
            return
        self._new = sorted(set(in_the_cache()) - self._before)
        if len(self._new) > MOST and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The lines that the list lacks."""
        if self._new:
            terminalreporter.section(f"tests compiled {len(self._new)} versions of kernels: add to {LIST.name}")
            for one in self._new:
                terminalreporter.write_line(",".join(one), red=True)


def in_the_cache() -> list[Version]:
    """The versions that this checkout has."""
    from gnnexp.kernels import versions  # imports numba, which most sessions do not need here

    return versions.cached(PACKAGE, PACKAGE)


if __name__ == "__main__":
    from gnnexp.kernels import versions

    versions.write(LIST, in_the_cache())
