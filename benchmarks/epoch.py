"""One epoch of system=dgl against system=dgl_reference at equal settings: interleaved pairs, medians, ratios.

Both run in processes of their own that live through all pairs, with the same memory settings (THP, glibc's mmap_max=0)
and 2 threads. The reference runs at its best number of loader processes, which is measured first.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from machine import keep
from ranks import Ranks, interleave

from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build
from gnnexp.files.cache import cache_root
from gnnexp.preparation.artifacts import prepare_graph

CASES = {
    "sage_dropout": (["model=sage", "model.dropout=0.5"], 2.5),
    "sage_no_dropout": (["model=sage", "model.dropout=0.0"], 1.2),
    "gat": (["model=gat", "model.heads=4", "model.dropout=0.0", "model.self_loops=false"], 2.0),
}


def measure(case: list[str], settings: list[str], graph: Path, pairs: int) -> dict[str, Any]:
    """Times of both systems, pair by pair; the first epoch of each warms up."""
    workers = {
        n: _one_epoch([*settings, *case, "system=dgl_reference", f"paradigm.num_workers={n}"], graph) for n in (0, 1, 2)
    }
    best = min(workers, key=workers.__getitem__)
    chosen = {
        "dgl": _start([*settings, *case, "system=dgl"], graph),
        "dgl_reference": _start([*settings, *case, "system=dgl_reference", f"paradigm.num_workers={best}"], graph),
    }
    rows = [{name: answers[0] for name, answers in row.items()} for row in interleave(chosen, pairs)]
    ratios = [row["dgl_reference"]["epoch_s"] / row["dgl"]["epoch_s"] for row in rows]
    return {
        "num_workers_tried_s": workers,
        "num_workers": best,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "median_s": {name: statistics.median(row[name]["epoch_s"] for row in rows) for name in chosen},
        "pairs": rows,
    }


def _one_epoch(overrides: list[str], graph: Path) -> float:
    system = _start(overrides, graph)
    system.ask()
    seconds = min(system.ask()[0]["epoch_s"] for _ in range(2))
    system.close()
    return float(seconds)


def _start(overrides: list[str], graph: Path) -> Ranks:
    return Ranks("epoch_worker.py", _config(overrides), graph=str(graph))


def _config(overrides: list[str]) -> dict[str, Any]:
    return compose(overrides).config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12, help="batches of an epoch")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--name", default="epoch")
    chosen = parser.parse_args()
    num_nodes = int(2_449_029 * chosen.scale)
    settings = [
        "dataset=dcsbm",
        "dataset.shape=products_like",
        f"dataset.scale={chosen.scale}",
        f"dataset.train={1024 * chosen.steps / num_nodes:.8f}",
        "sampler.fanouts=[15,10,5]",
        "model.hidden=256",
        "model.layers=3",
        "train.batch_size=1024",
        "hardware.workers=1",
        "hardware.device=cpu",
        "tracker=none",
    ]
    config = _config([*settings, "system=dgl"])
    _, graph = prepare_graph(build(config["dataset"], Dataset), cache_root())
    results = {}
    for name in chosen.cases:
        overrides, target = CASES[name]
        results[name] = {**measure(overrides, settings, graph, chosen.pairs), "target": target}
        print(f"{name}: {results[name]['ratio']:.2f}x (target {target}x) {results[name]['median_s']}", flush=True)
    print(keep(chosen.name, {"settings": settings, "cases": results}))


if __name__ == "__main__":
    main()
