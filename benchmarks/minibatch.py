"""Mini-batch systems side by side on two ranks: interleaved pairs, medians, ratios.

- an epoch of fastsample (hybrid partitioning, fused kernel) against distdgl's vanilla (partitioned topology, DGL's
  kernels) at equal settings;
- sampling a split batch on two ranks, splitting and id exchanges included, against sampling the same batch once on one
  of them with the same kernel;
- pre-sampling an epoch against sampling a training epoch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from machine import keep
from ranks import Ranks, interleave, slowest

from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build, experiment_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.storage.format import open_graph
from gnnexp.paradigms.loops.targets import TargetSchedule
from gnnexp.partitioners.base import Partitioner
from gnnexp.preparation.artifacts import prepare_graph, prepare_partition
from gnnexp.preparation.presample import presample
from gnnexp.samplers.base import SamplerOptions


def epochs(common: list[str], dataset: Dataset, folder: Path, pairs: int, hidden: int) -> dict[str, Any]:
    """fastsample and fastsample_hybrid against distdgl."""
    settings = [*common, "hardware.workers=2", f"model.hidden={hidden}", "train=fastsample"]
    running = {}
    for name in ("distdgl", "fastsample_hybrid", "fastsample"):
        config = compose([*settings, f"system={name}"]).config
        running[name] = Ranks(
            "epoch_worker.py", config, graph=str(folder), partition=str(_partition(config, dataset, folder))
        )
    rows = interleave(running, pairs)
    seconds = slowest(rows)
    return {
        "hidden": hidden,
        "median_s": {name: statistics.median(values) for name, values in seconds.items()},
        "ratio": _ratio(seconds["distdgl"], seconds["fastsample"]),
        "ratio_hybrid": _ratio(seconds["distdgl"], seconds["fastsample_hybrid"]),
        "seconds": seconds,
        "phases": {name: rows[-1][name][0]["phases"] for name in running},
    }


def splitting(common: list[str], dataset: Dataset, folder: Path, pairs: int, partitioner: str) -> dict[str, Any]:
    """Split sampling against one rank's sampling."""
    config = compose(
        [
            *common,
            "hardware.workers=2",
            "system=gsplit",
            "train=default",
            "sampler.fanouts=[15,15,15]",
            f"partitioner={partitioner}",
            "feature_store=local",
        ]
    ).config
    ranks = Ranks("split_worker.py", config, graph=str(folder), partition=str(_partition(config, dataset, folder)))
    ranks.ask()
    rows = [ranks.ask() for _ in range(pairs)]
    ranks.close()
    split = [max(rank["split_s"] for rank in row) for row in rows]
    alone = [row[0]["alone_s"] for row in rows]
    medians = {"split": statistics.median(split), "alone": statistics.median(alone)}
    return {
        "partitioner": partitioner,
        "median_s": medians,
        "ratio": _ratio(split, alone),
        "edges": [sum(rank["edges"] for rank in row) for row in rows],
        "edges_alone": [row[0]["edges_alone"] for row in rows],
    }


def presampling(common: list[str], graph: Graph, pairs: int) -> dict[str, Any]:
    """Pre-sampling one epoch against one thread's sampling of a training epoch."""
    config = compose([*common, "system=gsplit", "train=default", "sampler.fanouts=[15,15,15]"]).config
    sampler = build(config["sampler"], SamplerOptions).make()
    sampler.setup(Shard(graph), 3)
    schedule = TargetSchedule(graph.splits.train, config["train"]["batch_size"], 0, True)
    counted, plain = [], []
    for epoch in range(pairs + 1):
        counted.append(presample(experiment_of(config), graph, 1).seconds)
        start, order = time.perf_counter(), schedule.order(epoch)
        for step in range(schedule.num_steps):
            sampler.sample(schedule.global_batch(order, step), BatchKey(0, epoch, step))
        plain.append(time.perf_counter() - start)
    return {
        "median_s": {"presample": statistics.median(counted[1:]), "sample": statistics.median(plain[1:])},
        "ratio": _ratio(counted[1:], plain[1:]),
        "batches": schedule.num_steps,
    }


def _partition(config: dict[str, Any], dataset: Dataset, folder: Path) -> Path:
    partitioner = build(config["partitioner"], Partitioner)
    return prepare_partition(partitioner, open_graph(folder), dataset.key(), 2, cache_root())[1]


def _ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="global batches of an epoch")
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--hidden", type=int, nargs="*", default=[256, 32])
    parser.add_argument("--only", nargs="*", default=["epochs", "splitting", "presampling"])
    parser.add_argument("--name", default="minibatch")
    chosen = parser.parse_args()
    train = 2000 * chosen.steps / (2_449_029 * chosen.scale)
    common = [
        "dataset=dcsbm",
        "dataset.shape=products_like",
        f"dataset.scale={chosen.scale}",
        f"dataset.train={train:.8f}",
        "tracker=none",
        "hardware.device=cpu",
    ]
    dataset = build(compose(common).config["dataset"], Dataset)
    graph, folder = prepare_graph(dataset, cache_root())
    result: dict[str, Any] = {"settings": common}
    if "epochs" in chosen.only:
        result["epochs"] = [epochs(common, dataset, folder, chosen.pairs, hidden) for hidden in chosen.hidden]
        for row in result["epochs"]:
            print(
                f"fastsample against distdgl, hidden {row['hidden']}: {row['ratio']:.2f}x (wanted 1.5x), "
                f"hybrid {row['ratio_hybrid']:.2f}x {row['median_s']}",
                flush=True,
            )
    if "splitting" in chosen.only:
        result["splitting"] = [splitting(common, dataset, folder, chosen.pairs, name) for name in ("random", "metis")]
        for row in result["splitting"]:
            print(
                f"split sampling, {row['partitioner']}: {row['ratio']:.2f}x of sampling once (wanted <= 1.3x) "
                f"{row['median_s']}",
                flush=True,
            )
    if "presampling" in chosen.only:
        row = result["presampling"] = presampling(common, graph, chosen.pairs)
        print(f"pre-sampling: {row['ratio']:.2f}x of sampling (wanted <= 1.2x) {row['median_s']}", flush=True)
    print(keep(chosen.name, result))


if __name__ == "__main__":
    main()
