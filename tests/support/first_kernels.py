"""Which versions of kernels the first commands use: `python tests/support/first_kernels.py` writes the list again.

README's commands, and their relatives with the other two models, run with an empty cache. What is in the cache
afterwards is what set-up must compile (`gnnexp/kernels/first_commands.csv`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import gnnexp
from gnnexp.kernels import versions
from gnnexp.kernels.warmup import FIRST

ROOT = Path(__file__).parents[2]
_TABLES = [
    "dataset=tables",
    f"dataset.path={ROOT / 'examples' / 'my_tables'}",
    "dataset.nodes=pages.csv",
    "dataset.edges=links.csv",
    "dataset.features=words.json",
    "dataset.label=kind",
]
_QUICKSTART = [
    "model.hidden=64",
    "sampler.fanouts=[15,10,5]",
    "hardware.workers=2",
    "train.batch_size=256",
    "train.overlap=false",
]
_CHOICES = product(("gsplit", "dgl"), ("sage", "gcn", "gat"), (4, 1))


def commands() -> list[list[str]]:
    """Arguments of `gnnexp`."""
    runs = [
        ["dataset=digits", f"system={system}", f"model={model}", f"hardware.workers={workers}"]
        for system, model, workers in _CHOICES
    ]
    more = [["dataset=digits", "system=dgl", *_QUICKSTART], ["dataset=digits"], _TABLES]
    return [*(["run", *one, "train.epochs=3", "tracker=none"] for one in (*runs, *more)), ["predict", "latest"]]


def execute(folder: Path, cache: Path) -> None:
    """Run all commands in `folder`, with kernels in `cache`."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "GNNEXP_CACHE": str(folder / "artifacts")}
    for command in commands():
        subprocess.run(
            [sys.executable, "-m", "gnnexp", *command],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def in_cache(cache: Path) -> list[versions.Version]:
    """The versions in a folder of numba's."""
    return versions.cached(cache, Path(gnnexp.__file__).parent)


def main() -> None:
    """Write the list."""
    with tempfile.TemporaryDirectory() as name:
        execute(folder := Path(name), folder / "kernels")
        found = in_cache(folder / "kernels")
    versions.write(FIRST, found)
    print(f"{len(found)} versions in {FIRST}")


if __name__ == "__main__":
    main()
