"""One epoch of system=dgl against system=dgl_reference at equal settings: interleaved pairs, medians, ratios.

Both run in processes of their own that live through all pairs, with the same memory settings (THP, glibc's mmap_max=0)
and 2 threads. The reference runs at its best number of loader processes, which is measured first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import keep

from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.config.schema import run_config
from gnnexp.datasets.base import Dataset
from gnnexp.launchers.variables import worker_variables
from gnnexp.prepare import cache_root, prepare_graph

CASES = {
    "sage_dropout": (["model=sage", "model.dropout=0.5"], 2.5),
    "sage_no_dropout": (["model=sage", "model.dropout=0.0"], 1.2),
    "gat": (["model=gat", "model.heads=4", "model.dropout=0.0", "model.self_loops=false"], 2.0),
}


class System:
    """A living process of one system."""

    def __init__(self, config: dict[str, Any], graph: Path) -> None:
        run = run_config(config)
        variables = worker_variables(run.hardware, len(os.sched_getaffinity(0)))
        request = json.dumps({"config": config, "graph": str(graph)})
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("epoch_worker.py")), request], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **variables},
        )

    def epoch(self) -> dict[str, Any]:
        """Run one epoch, return its figures."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit(f"the system ended with {self._process.wait()}")
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(case: list[str], settings: list[str], graph: Path, pairs: int) -> dict[str, Any]:
    """Times of both systems, pair by pair; the first epoch of each warms up."""
    workers = {n: _one_epoch([*settings, *case, "system=dgl_reference", f"paradigm.num_workers={n}"], graph)
               for n in (0, 1, 2)}
    best = min(workers, key=workers.__getitem__)
    chosen = {
        "dgl": System(_config([*settings, *case, "system=dgl"]), graph),
        "dgl_reference": System(
            _config([*settings, *case, "system=dgl_reference", f"paradigm.num_workers={best}"]), graph
        ),
    }
    for system in chosen.values():
        system.epoch()
    rows = [{name: system.epoch() for name, system in chosen.items()} for _ in range(pairs)]
    for system in chosen.values():
        system.close()
    ratios = [row["dgl_reference"]["epoch_s"] / row["dgl"]["epoch_s"] for row in rows]
    return {
        "num_workers_tried_s": workers, "num_workers": best, "ratio": statistics.median(ratios), "ratios": ratios,
        "median_s": {name: statistics.median(row[name]["epoch_s"] for row in rows) for name in chosen},
        "pairs": rows,
    }


def _one_epoch(overrides: list[str], graph: Path) -> float:
    system = System(_config(overrides), graph)
    system.epoch()
    seconds = min(system.epoch()["epoch_s"] for _ in range(2))
    system.close()
    return float(seconds)


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
        "dataset=dcsbm", "dataset.shape=products_like", f"dataset.scale={chosen.scale}",
        f"dataset.train={1024 * chosen.steps / num_nodes:.8f}", "sampler.fanouts=[15,10,5]",
        "model.hidden=256", "model.layers=3", "train.batch_size=1024", "hardware.workers=1", "hardware.device=cpu",
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
