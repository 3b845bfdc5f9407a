"""The table of sweeps, made of sweeps/*.yaml."""

from __future__ import annotations

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import product_folder

HEAD = """# Sweeps

`gnnexp sweep NAME` runs what has not finished yet, and then shows its report; `gnnexp report NAME` shows it again.
Overrides after the name change every case. Made of `sweeps/*.yaml` when the site is built.

| name | question | runs | report |
|---|---|---|---|
"""


def sweeps_page() -> str:
    """The page's text."""
    return HEAD + "\n".join(_row(file.stem) for file in sorted(product_folder("sweeps").glob("*.yaml"))) + "\n"


def _row(name: str) -> str:
    sweep = load_sweep(name)
    return f"| `{name}` | {sweep.description} | {len(sweep.cases)} | {sweep.report.get('kind', 'comparison')} |"
