"""CPU seconds of each test: of its process, and of all processes below it, ranks that wait for the next test too."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOWEST, TOO_SLOW_S = 10, 8.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU seconds of this process, of those below it, and of those that these have waited for."""
    total, processes = 0, [os.getpid()]
    for pid in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            children = [task.read_text(encoding="utf-8") for task in Path(f"/proc/{pid}/task").glob("*/children")]
        except (FileNotFoundError, ProcessLookupError):  # it has ended; its parent counts it
            continue
        total += sum(map(int, fields[11:15]))
        processes += [int(child) for line in children for child in line.split()]
    return total / _TICKS


class Costs:
    """Notes what each test cost in its report, and prints the most expensive ones at the end.

    The variable GNNEXP_TEST_COSTS names a file for all costs. A pytest that a test starts does not see it.
    """

    def __init__(self) -> None:
        self._file = os.environ.pop("GNNEXP_TEST_COSTS", "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Set-up and what fixtures end are counted where they happen."""
        before = cpu_seconds()
        item.stash[_BEFORE] = before
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
        costs = sorted(((value, report.nodeid, "slow" in report.keywords)
                        for report in reports if report.when == "teardown"
                        for name, value in report.user_properties if name == PROPERTY), reverse=True)
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
_TOO_SLOW = f"  (above {TOO_SLOW_S:.0f}: make it cheaper, or give it the mark `slow`)"
_BEFORE = pytest.StashKey[float]()
