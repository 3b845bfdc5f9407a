"""Systems that papers compare, with 1 and 2 threads for each rank: interleaved epochs, ratios with 95 % intervals.

- `sampled`: FastSample against DistDGL (vanilla), against DGL's two-step kernels on the same placement, and against
  DGL's fused kernel there. One rank and two ranks.
- `full`: NeutronTP against NeutronStar's two forms, and against both at their best. Two ranks.

A ratio above 1 says that the second system of its name takes longer. Two ranks with 2 threads each need 4 cores: on
fewer, they share them, and the file says how many there are.

    python benchmarks/rank_threads.py                          7 pairs
    python benchmarks/rank_threads.py --only full --scale 0.2 --pairs 6 --name scratch
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

from machine import keep
from side_by_side import arguments, compare, graph
from versions import interval

SAMPLED = ("fastsample", "fastsample_dgl", "fastsample_hybrid", "distdgl")
FULL = ("neutrontp", "neutronstar", "neutronstar_best", "neutronstar_comm", "neutronstar_comm_best")
THREADS = (1, 2)


def against_first(settings: Sequence[str], systems: Sequence[str], pairs: int) -> dict[str, Any]:
    """Seconds of an epoch of each system over those of the first one, in the same pair."""
    found = compare(settings, {name: [f"system={name}"] for name in systems}, pairs)
    seconds, first = found["seconds"], systems[0]
    ratios = {
        name: [other / own for other, own in zip(seconds[name], seconds[first], strict=True)] for name in systems[1:]
    }
    found["ratio"] = {name: statistics.median(values) for name, values in ratios.items()}
    found["interval"] = {name: interval(values) for name, values in ratios.items()}
    lines = (
        f"{name} {found['ratio'][name]:.2f}x ({low:.2f} to {high:.2f})"
        for name, (low, high) in found["interval"].items()
    )
    print(" ".join(settings[-2:]), f"over {first}:", ", ".join(lines), flush=True)
    return found


def sampled(pairs: int, scale: float, ranks: int, threads: int) -> dict[str, Any]:
    """An epoch of 4 batches of 1024 targets, GraphSAGE with 3 layers of 256."""
    settings = [
        *graph("papers_like", scale),
        "dataset.train=0.0092",
        "train=fastsample",
        "train.batch_size=1024",
        "train.batch_of=run",
        "train.overlap=false",
        "model=sage",
        f"sampler.threads={threads}",
        f"hardware.workers={ranks}",
        f"hardware.threads={threads}",
    ]
    return against_first(settings, SAMPLED, pairs)


def full(pairs: int, scale: float, ranks: int, threads: int) -> dict[str, Any]:
    """A full-graph epoch of GCN."""
    shape = [*graph("reddit_like", scale), "train=neutrontp", "model=gcn"]
    return against_first([*shape, f"hardware.workers={ranks}", f"hardware.threads={threads}"], FULL, pairs)


def main() -> None:
    parser = arguments(__doc__, "rank_threads", ())
    parser.set_defaults(pairs=7)
    parser.add_argument("--only", nargs="*", default=["sampled", "full"])
    chosen = parser.parse_args()
    result: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
    if "sampled" in chosen.only:
        cases = [(ranks, threads) for ranks in (1, 2) for threads in THREADS]
        result["sampled"] = [sampled(chosen.pairs, chosen.scale, *case) for case in cases]
    if "full" in chosen.only:
        result["full"] = [full(chosen.pairs, chosen.scale, 2, threads) for threads in THREADS]
    print(keep(chosen.name, result))


if __name__ == "__main__":
    main()
