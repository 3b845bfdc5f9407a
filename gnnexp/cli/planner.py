"""`gnnexp plan`: systems ranked by what an epoch would take on described hardware, from the counts of runs."""

from __future__ import annotations

import argparse

from gnnexp.cli.console import make_console
from gnnexp.cli.report import REPORTS, choose
from gnnexp.errors import ConfigError, Problem
from gnnexp.planner.profiles import machines_named
from gnnexp.reports.estimates import make_table
from gnnexp.reports.table import save_table
from gnnexp.runs import read_run


def main(options: argparse.Namespace) -> int:
    """Print the table, and save it beside the reports."""
    if not options.scale > 0:
        raise ConfigError(Problem("--scale", options.scale, "must be positive", "--scale 1"))
    machines = machines_named(options.hardware.split(","))
    choice = choose(options.names)
    table = make_table([read_run(path) for path in choice.paths], machines, options.scale)
    console = make_console()
    console.print(table.rich(f"plan {choice.name}"))
    files = save_table(table, REPORTS / choice.name, "plan", ("md", "csv"))
    console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    return 0
