"""Model averaging compared with data parallelism: epochs in turn, medians, ratios, and the memory of a rank.

All cases have two ranks, the same sampler and batches of the same size. Data parallelism reads the whole mapped graph.
Model averaging has as many parts as ranks (p = q), or four times as many (p = 4q). With more parts than ranks, a rank
loads the next part while it trains one, or (`held_parts.py`) holds all of its parts. A part has fewer neighbours of its
halo than the graph has, so fewer edges are sampled. Therefore the ratios are also given per computed edge.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from machine import keep
from ranks import interleave, slowest
from side_by_side import arguments, start

BATCH = 1000  # of a rank
SYSTEMS = {
    "data_parallel": ["system=dgl", f"train.batch_size={2 * BATCH}"],
    "p = q": ["system=sdt_gnn", "partitioner.num_parts=2", f"paradigm.local_batch_size={BATCH}"],
    "p = 4q": ["system=sdt_gnn", "partitioner.num_parts=8", f"paradigm.local_batch_size={BATCH}"],
    "p = 4q, all held": [
        "system=sdt_gnn",
        "partitioner.num_parts=8",
        f"paradigm.local_batch_size={BATCH}",
        "paradigm._target_=held_parts.HeldParts",
    ],
}
# What is compared, and the most it may be of the other.
TARGETS = {("p = q", "data_parallel"): 1.1, ("p = 4q", "p = 4q, all held"): 1.15}
SHAPE, SHARE = "products_like", 0.2
MODELS = {"sage": ["model=sage"], "gat": ["model=gat", "model.heads=4"]}
Answers = Sequence[Mapping[str, Any]]


def settings(scale: float, steps: int) -> list[str]:
    """What all systems share; `steps` batches of a rank."""
    train = 2 * BATCH * steps / (2_449_029 * SHARE * scale)
    return [
        "dataset=dcsbm",
        f"dataset.shape={SHAPE}",
        f"dataset.scale={SHARE * scale}",
        f"dataset.train={train:.8f}",
        "dataset.locality=0.8",
        "dataset.communities=1000",  # parts of a graph without any would copy nearly all of it
        "hardware.workers=2",
        "hardware.threads=1",
        "sampler.fanouts=[15,10]",
        "model.layers=2",
        "model.hidden=128",
    ]


def measure(common: Sequence[str], model: Sequence[str], pairs: int) -> dict[str, Any]:
    """All systems with one model."""
    rows = interleave({name: start([*common, *overrides, *model]) for name, overrides in SYSTEMS.items()}, pairs)
    seconds = slowest(rows)
    edges = {name: [sum(rank["edges"] for rank in row[name]) for row in rows] for name in SYSTEMS}
    per_edge = {name: [s / e for s, e in zip(seconds[name], edges[name], strict=True)] for name in SYSTEMS}
    return {
        "settings": [*common, *model],
        "seconds": seconds,
        "edges": edges,
        "median_s": {name: statistics.median(values) for name, values in seconds.items()},
        "ratios": [
            {
                "of": one,
                "to": other,
                "wanted": most,
                "epoch": ratio(seconds, one, other),
                "per_edge": ratio(per_edge, one, other),
            }
            for (one, other), most in TARGETS.items()
        ],
        "phases": {name: rows[-1][name][0]["phases"] for name in SYSTEMS},
        "memory": {name: memory([rank for row in rows for rank in row[name]]) for name in SYSTEMS},
    }


def ratio(values: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """Median over pairs."""
    return statistics.median(a / b for a, b in zip(values[one], values[other], strict=True))


def memory(answers: Answers) -> dict[str, int]:
    """Memory of the rank that has most: its peak beyond the start of the process, and its bytes of the graph."""
    return {
        "peak_beyond_start_bytes": max(answer["peak_bytes"] - answer["started_bytes"] for answer in answers),
        "started_bytes": max(answer["started_bytes"] for answer in answers),
        **{name: max(answer["held"][name] for answer in answers) for name in ("topology_bytes", "vertex_bytes")},
    }


def main() -> None:
    parser = arguments(__doc__, "model_averaging", [SHAPE])
    parser.add_argument("--steps", type=int, default=40, help="batches of a rank")
    parser.set_defaults(models=list(MODELS))
    chosen = parser.parse_args()
    found = {}
    for name in chosen.models:
        found[name] = measure(settings(chosen.scale, chosen.steps), MODELS[name], chosen.pairs)
        for row in found[name]["ratios"]:
            print(
                f"{name}: {row['of']} takes {row['epoch']:.2f}x of {row['to']}, {row['per_edge']:.2f}x per edge "
                f"(wanted <= {row['wanted']}) {found[name]['median_s']}",
                flush=True,
            )
        print(found[name]["memory"], flush=True)
    print(keep(chosen.name, {"models": found}))


if __name__ == "__main__":
    main()
