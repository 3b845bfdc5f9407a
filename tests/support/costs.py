"""CPU seconds of each test: of its process, and of all processes below it, ranks that wait for the next test too."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOWEST, TOO_SLOW_S = 10, 8.0
_TICKS, _MOST_BYTES = os.sysconf("SC_CLK_TCK"), 1 << 20


def cpu_seconds() -> float:
    """CPU seconds of this process, of those below it, and of those that these have waited for.

    Every test asks for it: files are read without pathlib and its lists.
    """
    total, processes = 0, [str(os.getpid())]
    for pid in processes:
        try:
            fields = _content(f"/proc/{pid}/stat").rpartition(")")[2].split()
            children = [_content(f"/proc/{pid}/task/{task}/children") for task in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
        except (FileNotFoundError, ProcessLookupError):  # it has ended; its parent counts it
            continue
        total += sum(map(int, fields[11:15]))
        processes += [child for line in children for child in line.split()]
    return total / _TICKS


def _content(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_BYTES).decode()
    finally:
        os.close(file)


class Costs:
    """Notes what each test cost in its report, and prints the most expensive ones at the end.

    The variable GNNEXP_TEST_COSTS names a file for all costs. A pytest that a test starts does not see it.
    """

    def __init__(self) -> None:
        self._file = os.environ.pop("GNNEXP_TEST_COSTS", "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Set-up and what fixtures end are counted where they happen. What ends between two tests is of none."""
        item.stash[_BEFORE] = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """The last report of a test has its cost."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((PROPERTY, cpu_seconds() - item.stash[_BEFORE]))
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The slowest, and a warning where one costs too much."""
        kinds = ("", "passed", "failed", "error")
        reports = [report for kind in kinds for report in terminalreporter.stats.get(kind, [])]
        costs = sorted(
            (
                (value, report.nodeid, "slow" in report.keywords)
                for report in reports
                if report.when == "teardown"
                for name, value in report.user_properties
                if name == PROPERTY
            ),
            reverse=True,
        )
        if not costs:
            return
        total = sum(value for value, *_ in costs)
        terminalreporter.section(f"{len(costs)} tests took {total:.0f} CPU seconds; the slowest")
        for value, test, is_slow in costs[:SLOWEST]:
            much = value > TOO_SLOW_S and not is_slow
            terminalreporter.write_line(f"{value:8.2f}  {test}{_TOO_SLOW * much}", red=much)
        if self._file:
            Path(self._file).write_text("".join(f"{value:.2f}\t{test}\n" for value, test, _ in costs), encoding="utf-8")


PROPERTY = "cpu_s"
_BEFORE = pytest.StashKey[float]()
_TOO_SLOW = f"  (above {TOO_SLOW_S:.0f}: make it cheaper, or give it the mark `slow`)"
