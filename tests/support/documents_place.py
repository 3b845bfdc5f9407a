"""A folder in which the commands of the documentation can be typed: the names that they use lead to real data."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import yaml
from command_line import start
from documented_commands import ROOT

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.datasets.published.digits import Digits
from gnnexp.graph.storage.format import save_graph

# Names in commands, and the folder of the data under $GNNEXP_DATA.
DATA = {"path/to/cora": "cora", "path/to/aminer": "aminer"}


def linked_place(folder: Path) -> Path:
    """`folder`, with a copy of examples/ (runs are made there), links to data, edges, a graph on disk, a query."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "runs"))
    root = os.environ.get(ROOT_VARIABLE)
    for name, data in DATA.items() if root else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(Path(str(root)) / data)
    edges = np.loadtxt(ROOT / "examples" / "my_graph" / "edges.tsv", dtype=np.int32)
    edges.tofile(folder / "edges.bin")
    save_graph(Digits().load(), folder / "graph")
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    (folder / "mine.sql").write_text(page.partition("```sql\n")[2].partition("```")[0], encoding="utf-8")
    return folder


def stopped_run(folder: Path) -> Path:
    """A run that was asked to stop after its first epoch, and left a checkpoint."""
    run_dir = folder / "runs" / f"stopped-{len(list(folder.glob('runs/stopped-*')))}"
    process = start(
        "run",
        "dataset=digits",
        "model.hidden=16",
        "train.epochs=200",
        "train.eval_every=0",
        "tracker=none",
        "hardware.workers=1",
        f"hydra.run.dir={run_dir}",
        cwd=folder,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch"):
            process.send_signal(signal.SIGTERM)
            break
    said, _ = process.communicate()
    assert process.returncode != 0 and list(run_dir.glob("checkpoints/*")), said
    return run_dir


def small_sweep(folder: Path, name: str, overrides: list[str]) -> str:
    """A sweep of the same name and report with two of its cases: the first, and the first of another system.

    Its rows are left out, because they may name keys that only other cases have.
    """
    with contextlib.chdir(folder):
        sweep = load_sweep(name, overrides)
    first, *others = sweep.cases
    system = [line for line in first.overrides if line.startswith("system=")]
    other = next((case for case in others if system and system[0] not in case.overrides), None)
    chosen = [case for case in (first, other) if case is not None]
    report = {key: value for key, value in sweep.report.items() if key in ("kind", "published")}
    content = {
        "description": sweep.description,
        "cases": [{"overrides": list(case.overrides)} for case in chosen],
        "report": report,
    }
    file = folder / "small" / f"{sweep.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(file)
