"""CPU seconds of a counted batch over those of a trained step: interleaved pairs, seconds of all processes.

A run of many steps less a run of few steps, divided by the steps between them, is what one step costs. Both modes draw
the same batches: FastSample's sampler, 3 layers of 256, 128 features, batches of 1024 targets, fanouts 15, 10, 5.

    python benchmarks/counting.py               5 pairs, 1 and 4 ranks
    python benchmarks/counting.py --pairs 3 --name scratch
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import keep
from versions import interval

FEW, MANY = 5, 45
SETTINGS = (
    "system=fastsample",
    "dataset=dcsbm",
    "dataset.shape=products_like",
    "dataset.scale=0.1",
    "dataset.num_features=128",
    "dataset.train=0.3",
    "model=sage",
    "model.hidden=256",
    "train.batch_size=1024",
    "train.batch_of=run",
    "train.epochs=1",
    "train.eval_every=null",
    "train.checkpoint_every=0",
    "hardware.threads=1",
    "tracker=none",
)
MODES = {"trained": (), "counted": ("train.count_only=true",)}


def cpu_seconds(overrides: Sequence[str]) -> float:
    """CPU seconds of a run and all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        place = f"hydra.run.dir={Path(folder) / 'run'}"
        subprocess.run([sys.executable, "-m", "gnnexp", "run", *overrides, place], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def step_seconds(ranks: int, mode: str) -> float:
    """CPU seconds of one step of all ranks."""
    shared = [*SETTINGS, f"hardware.workers={ranks}", *MODES[mode]]
    few, many = (cpu_seconds([*shared, f"train.steps_per_epoch={steps}"]) for steps in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def compared(ranks: int, pairs: int) -> dict[str, Any]:
    """Seconds of both modes, and their ratio."""
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    step_seconds(ranks, "counted")  # prepares the graph and compiles kernels
    for _ in range(pairs):
        for mode in MODES:
            seconds[mode].append(step_seconds(ranks, mode))
    ratios = [counted / trained for counted, trained in zip(seconds["counted"], seconds["trained"], strict=True)]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    medians = {mode: statistics.median(values) for mode, values in seconds.items()}
    print(f"{ranks} ranks: {medians}, counted / trained {ratio:.3f} ({low:.3f} to {high:.3f})", flush=True)
    return {"ranks": ranks, "seconds": seconds, "ratio": ratio, "interval": [low, high]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--name", default="counting")
    chosen = parser.parse_args()
    keep(chosen.name, {"steps": [FEW, MANY], "cases": [compared(ranks, chosen.pairs) for ranks in chosen.ranks]})


if __name__ == "__main__":
    main()
