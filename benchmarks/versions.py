"""This checkout compared with an earlier commit: `python benchmarks/versions.py --base COMMIT`.

Both train the same cases on the same graphs and partitions, in processes of their own that live through all pairs. They
take turns of some epochs, and the side that begins changes from pair to pair. The result of a case is the median over
pairs of (seconds here) / (seconds there), with its 95 % interval by order statistics (of 6 pairs or more). The losses
must be equal to the bit. Cases of `start.py` are commands, which start again in each turn: CPU seconds of
all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import keep
from ranks import HERE, Ranks
from scipy.stats import binom
from start import environment_of, one_round

_MINI = (
    "dataset=dcsbm",
    "dataset.shape=products_like",
    "dataset.scale=0.05",
    "dataset.train=0.1",
    "sampler.fanouts=[15,10,5]",
    "model.hidden=256",
    "model.layers=3",
    "train.batch_size=1024",
    "hardware.workers=1",
)
_FULL = ("dataset=dcsbm", "dataset.shape=reddit_like", "dataset.scale=0.05", "hardware.workers=2")
CASES = {
    "sage": ("system=dgl", "model=sage", "model.dropout=0.5", *_MINI),
    "gat": ("system=dgl", "model=gat", "model.heads=4", "model.dropout=0.0", *_MINI),
    "neutrontp": ("system=neutrontp", *_FULL),
    "hongtu": ("system=hongtu", *_FULL),
}
STARTS = ("run", "case of a sweep")
COMMON = ("tracker=none", "hardware.device=cpu", "preflight=off")
# Run by a checkout's own code: its configuration, and where it finds what was prepared for it.
_PREPARE = """
import json, sys
from pathlib import Path
try:
    from gnnexp.cli.running.prepare import prepare
except ImportError:  # commits before the rooms of issue 33
    from gnnexp.cli.prepare import prepare
from gnnexp.config.compose import compose
config = compose(sys.argv[1:]).config
try:
    from gnnexp.experiment.build import experiment_of
    made = prepare(experiment_of(config), Path("runs"))
except ImportError:  # commits before `Experiment`
    made = prepare(config, Path("runs"))
found = {"graph": made.folder, "partition": made.partition, "parts": made.parts, "frequency": made.presample}
print(json.dumps([config, {name: str(path) for name, path in found.items() if path}]))
"""


def start(tree: Path, overrides: Sequence[str], work: Path) -> Ranks:
    """The ranks of a case, by the code of `tree`; what is prepared lies in `work`."""
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE, *COMMON, *overrides],
        check=True,
        text=True,
        cwd=work,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tree), "GNNEXP_CACHE": str(work / "cache")},
    )
    config, artifacts = json.loads(done.stdout.splitlines()[-1])
    return Ranks("epoch_worker.py", config, tree=tree, **artifacts)


def turn(ranks: Ranks, epochs: int) -> dict[str, Any]:
    """Seconds of the slowest rank in some epochs, and their losses."""
    answers = [ranks.ask() for _ in range(epochs)]
    return {
        "seconds": sum(max(rank["epoch_s"] for rank in epoch) for epoch in answers),
        "losses": [epoch[0]["loss"] for epoch in answers],
    }


def compared(
    trees: Mapping[str, Path], overrides: Sequence[str], work: Path, pairs: int, epochs: int
) -> dict[str, Any]:
    """One case, pair by pair, after a turn that warms up.

    Raises:
        SystemExit: losses differ.
    """
    running = {name: start(tree, overrides, work) for name, tree in trees.items()}
    for ranks in running.values():
        turn(ranks, epochs)
    rows = []
    for pair in range(pairs):
        order = list(running) if pair % 2 == 0 else list(reversed(running))
        found = {name: turn(running[name], epochs) for name in order}
        if found["here"]["losses"] != found["base"]["losses"]:
            raise SystemExit(f"losses differ: {found['base']['losses']}, here {found['here']['losses']}")
        rows.append({name: found[name]["seconds"] for name in trees})
    for ranks in running.values():
        ranks.close()
    ratios = [row["here"] / row["base"] for row in rows]
    return {"ratio": statistics.median(ratios), "interval": interval(ratios), "pairs": rows}


def started(trees: Mapping[str, Path], name: str, work: Path, pairs: int) -> dict[str, Any]:
    """CPU seconds of a command of `start.py`, pair by pair, after a turn that compiles and prepares."""
    rows: list[dict[str, float]] = []
    for pair in range(-1, pairs):
        order = [*trees][:: 1 if pair % 2 == 0 else -1]
        row = {}
        for side in order:
            folder = work / name / side
            (folder / "plain").mkdir(parents=True, exist_ok=True)
            environment = environment_of(trees[side], folder)
            row[side] = one_round([name], folder / "plain", folder / f"pair {pair}", environment)[name].cpu
        rows += [row] * (pair >= 0)
    ratios = [row["here"] / row["base"] for row in rows]
    return {"ratio": statistics.median(ratios), "interval": interval(ratios), "pairs": rows}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, with at least 95 %: the k-th smallest and largest value, for the largest k that suffices."""
    below = int(binom.ppf(0.025, len(values), 0.5))  # so many values are on either side at least
    ordered = sorted(values)
    return ordered[max(0, below - 1)], ordered[-max(1, below)]


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", str(HERE), *words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="commit")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=4, help="of a turn")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=[*CASES, *STARTS])
    parser.add_argument("--name", default="versions")
    chosen = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        _git("worktree", "add", "--detach", "-q", str(base), chosen.base)
        try:
            trees = {"base": base, "here": HERE}
            for name in chosen.cases:
                results[name] = (
                    started(trees, name, Path(folder), chosen.pairs)
                    if name in STARTS
                    else compared(trees, CASES[name], Path(folder), chosen.pairs, chosen.epochs)
                )
                low, high = results[name]["interval"]
                print(f"{name}: {results[name]['ratio']:.3f} of {chosen.base} ({low:.3f} to {high:.3f})", flush=True)
        finally:
            _git("worktree", "remove", "--force", str(base))
    print(keep(chosen.name, {"base": chosen.base, "epochs": chosen.epochs, "cases": results}))


if __name__ == "__main__":
    main()
