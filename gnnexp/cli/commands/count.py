"""`gnnexp count`: what a run would count, without training."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gnnexp.cli.output import Answer
from gnnexp.record.runs import RecordedRun, read_run

# What a user who sets nothing gets: one epoch, without an evaluation. One epoch's counts are exact.
_DEFAULTS = {"train.epochs": "1", "train.eval_every": "null"}
_SHOWN = ("work/", "comm/", "tier/")


def main(options: argparse.Namespace) -> Answer:
    """Count an epoch, and show the sums over ranks with their standard errors over batches.

    Raises:
        ConfigError, DataError: a problem that was found before the run directory exists.
    """
    options.overrides = counting(options.overrides)
    if options.dry_run:
        from gnnexp.cli.running.dry import dry_run

        return dry_run(options)
    from gnnexp.cli.console import make_console
    from gnnexp.cli.running.execute import answer_of, execute
    from gnnexp.cli.running.prepare import checked_config
    from gnnexp.launchers.base import Launchers

    console = make_console()
    with ExitStack() as stack:
        checked = checked_config(options.overrides, options.config_dir, options.config_name)
        outcome = execute(checked, console, stack.enter_context(Launchers()))
    run_dir = checked.composed.run_dir
    if outcome.status == "finished":
        tell_counts(read_run(run_dir), run_dir, console)
    return answer_of(run_dir, outcome)


def counting(overrides: list[str]) -> list[str]:
    """The overrides of a run that only counts. What the user sets stays."""
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    defaults = [f"{key}={value}" for key, value in _DEFAULTS.items() if key not in given]
    return [*overrides, *defaults, "train.count_only=true"]


def tell_counts(run: RecordedRun, run_dir: Path, console: Console) -> None:
    """A table of the last epoch's counts."""
    metrics = run.epochs[-1]
    table = Table("count", "all ranks", "standard error", "largest rank / mean")
    for name, value in sorted(metrics.items()):
        if name.startswith(_SHOWN):
            error, skew = metrics.get(f"se/{name}"), metrics.get(f"imbalance/{name.rpartition('/')[2]}")
            table.add_row(
                name,
                f"{value:,.0f}",
                "–" if error is None else f"{error:,.0f}",
                "–" if skew is None else f"{skew:.3f}",
            )
    console.print(table)
    console.print(
        f"{metrics['counts/batches']:,.0f} batches. The error of a sum follows from the spread of the batches.",
        soft_wrap=True,
    )
    console.print(f"record: {run_dir}", soft_wrap=True)
