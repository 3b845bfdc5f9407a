"""A folder in which the commands of the documentation can be typed: the names that they use lead to real data."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
from documented_commands import ROOT

from gnnexp.datasets.base import ROOT_VARIABLE

# Names in commands, and the folder of the data under $GNNEXP_DATA.
DATA = {"path/to/cora": "cora", "path/to/aminer": "aminer"}


def linked_place(folder: Path) -> Path:
    """`folder`, with a copy of examples/ (runs are made there), links to data, and a file of edges in binary."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "runs"))
    root = os.environ.get(ROOT_VARIABLE)
    for name, data in DATA.items() if root else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(Path(str(root)) / data)
    edges = np.loadtxt(ROOT / "examples" / "my_graph" / "edges.tsv", dtype=np.int32)
    edges.tofile(folder / "edges.bin")
    return folder
