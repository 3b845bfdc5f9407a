"""`gnnexp sweep --until decided`: seeds are added until the report's verdicts are decided, or a budget is used up.

Runs are looked at with 5, 10, 20, … seeds. Each look has a smaller level than the one before, and all together have the
level of one (`gnnexp.reports.paired.statistics.level_of_look`): whoever looks at 5 % until something differs will find
something.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.sweeping.command import add_and_work
from gnnexp.cli.sweeping.definition import Sweep, load_sweep
from gnnexp.cli.sweeping.queue import Queue, state_content
from gnnexp.errors import ConfigError, Problem
from gnnexp.launchers.base import Launchers
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import chosen_columns, target_columns, usual_columns
from gnnexp.reports.layout import ReportLayout, read_layout
from gnnexp.reports.paired.statistics import Verdict, level_of_look
from gnnexp.reports.paired.verdicts import PairedResult, paired_results
from gnnexp.reports.sweep_runs import ran_here
from gnnexp.reports.tables.groups import group_runs, row_keys

FIRST_LOOK = 5
DECIDED = "decided"

# The configurations of all cases of a sweep, checked.
CheckAll = Callable[[Sweep], list[CheckedConfig]]


def check_until(options: argparse.Namespace, sweep: Sweep) -> None:
    """Check the options of `--until` before a case runs.

    Raises:
        ConfigError: an option is wrong, or the report compares with nothing.
    """
    problems = []
    if options.until != DECIDED:
        problems.append(Problem("--until", options.until, f"allowed: {DECIDED}", f"--until {DECIDED}"))
    if options.most_seeds < FIRST_LOOK:
        problems.append(Problem("--most-seeds", options.most_seeds, f"at least {FIRST_LOOK}", "--most-seeds 40"))
    if not read_layout(sweep.report).against:
        problems.append(
            Problem("--until", options.until, "needs a system to compare with", "report: {against: dgl} in the file")
        )
    if options.dry_run or options.print_script:
        problems.append(Problem("--until", options.until, "depends on results", "leave --dry-run, --print-script out"))
    ConfigError.raise_all(problems)


def looks(most: int) -> Iterator[int]:
    """Numbers of seeds to look at: 5, 10, 20, …; the last is `most`."""
    count = FIRST_LOOK
    while count < most:
        yield count
        count *= 2
    yield most


def work_until_decided(
    queue: Queue, options: argparse.Namespace, launchers: Launchers, check_all: CheckAll
) -> list[PairedResult]:
    """Run the cases of more and more seeds. Returns what is still undecided: empty if all is decided."""
    known: set[tuple[str, ...]] = set()
    undecided: list[PairedResult] = []
    for number, count in enumerate(looks(options.most_seeds), 1):
        seeds = f"seed={','.join(map(str, range(count)))}"
        sweep = load_sweep(options.name, [*options.overrides, seeds], full=options.full)
        sweep = replace(sweep, report=queue.sweep.report, command=queue.sweep.command, looks=number)
        new = [case for case in sweep.cases if case.overrides not in known]
        known |= {case.overrides for case in new}
        checked = check_all(replace(sweep, cases=tuple(new)))
        queue.sweep = sweep
        add_and_work(
            queue, [(case.label, config) for case, config in zip(new, checked, strict=True)], options, launchers
        )
        if any(state.status in ("interrupted", "submitted") for state in queue.states):
            return undecided
        undecided = undecided_results(
            ran_here(state_content(sweep, queue.states)).runs, read_layout(sweep.report), number
        )
        queue.console.print(look_in_words(undecided, number, count), soft_wrap=True)
        if not undecided:
            break
    return undecided


def undecided_results(runs: Sequence[RecordedRun], layout: ReportLayout, look: int) -> list[PairedResult]:
    """The comparisons that look number `look` leaves open: of the test metric, the epoch, and chosen columns.

    More seeds do not decide what has no pair: a rival whose runs all fail, or a metric that is not recorded.
    """
    keys = row_keys(runs, layout.rows)
    groups = group_runs(runs, keys)
    test, epoch, *_ = usual_columns(groups)
    columns = [*(chosen_columns(layout.columns) or (test, epoch)), *target_columns(layout.target)]
    results = paired_results(groups, keys, columns, layout.against, layout.equal, level_of_look(look))
    return [result for result in results if result.verdict is Verdict.UNDECIDED and result.difference.differences]


def look_in_words(undecided: Sequence[PairedResult], look: int, count: int) -> str:
    """What a look has shown, for the console."""
    level = f"look {look}, {count} seeds, level {level_of_look(look):.2g}"
    if not undecided:
        return f"decided ({level})"
    names = ", ".join(f"{' '.join(result.rival.labels)} {result.column.header}" for result in undecided)
    return f"undecided ({level}): {names}"
