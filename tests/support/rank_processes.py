"""Processes of a run's ranks: forks of one process, which no command line tells apart; each writes who it is."""

from __future__ import annotations

import json
from pathlib import Path

import psutil


def ranks_of(run_dir: Path) -> dict[int, psutil.Process]:
    """Those that live, by rank; zombies and processes that got the number of one afterwards are none of them."""
    found = {}
    for file in (run_dir / "status").glob("rank_*.json"):
        status = json.loads(file.read_text())
        try:
            process = psutil.Process(status["pid"])
            if process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= status["time"]:
                found[int(status["rank"])] = process
        except psutil.NoSuchProcess:
            continue
    return found
