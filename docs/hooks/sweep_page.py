"""The table of sweeps, made of the files below sweeps/."""

from __future__ import annotations

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import product_sweeps

HEAD = """# Sweeps

`gnnexp sweep NAME` runs what has not finished yet, and then shows its report; `gnnexp report NAME` shows it again.
Overrides after the name change every case. Made of the files below `sweeps/` when the site is built.

| name | question | runs | report |
|---|---|---|---|
"""


def sweeps_page() -> str:
    """The page's text."""
    return HEAD + "\n".join(map(_row, sorted(product_sweeps()))) + "\n"


def _row(name: str) -> str:
    sweep = load_sweep(name)
    return f"| `{name}` | {sweep.description} | {len(sweep.cases)} | {sweep.report.get('query', 'comparison')} |"
