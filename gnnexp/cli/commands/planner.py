"""`gnnexp plan`: systems ranked by their estimated epoch on described hardware, from the counts of runs."""

from __future__ import annotations

import argparse
import math

from gnnexp.cli.commands.report import choose
from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.runs import named_run
from gnnexp.errors import ConfigError, Problem
from gnnexp.planning.machine import ALL, Machine, all_machines, machines_named
from gnnexp.record.runs import REPORTS
from gnnexp.reports.planned import Scale
from gnnexp.reports.ranking import make_ranking
from gnnexp.reports.tables.data import document_of
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.terminal import terminal_table


def main(options: argparse.Namespace) -> Answer:
    """Print the table, and save it with the reports."""
    scale = _scale(options.scale)
    machines, untold = _machines(options.hardware, options.config_dir)
    choice = choose([str(named_run(name)) for name in options.names], "plan")
    table = make_ranking(choice.runs, machines, scale, untold)
    console = make_console()
    console.print(terminal_table(table, console.width, f"plan {choice.name}"))
    files = save_table(table, REPORTS / choice.name, "plan", ("md", "csv"))
    console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    return Answer({"plan": choice.name, "table": document_of(table), "files": files})


def _machines(words: str, config_dir: str | None) -> tuple[list[Machine], list[str]]:
    if words == ALL:
        return all_machines(config_dir)
    return machines_named(words.split(","), config_dir), []


def _scale(word: str) -> Scale:
    if word == "full":
        return "full"
    try:
        factor = float(word)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0):
        raise ConfigError(Problem("--scale", word, "must be a positive number, or full", "--scale 1"))
    return factor
