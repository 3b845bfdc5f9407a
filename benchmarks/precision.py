"""What rounding to bfloat16 costs in accuracy: `python benchmarks/precision.py`, some minutes on one core.

Trains on real graphs, on one CPU worker, with several seeds. The accuracy is that of the test split after the last
epoch, so validation chooses nothing. A CPU only emulates the rounding: times mean nothing here.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from machine import keep

from gnnexp.comm.environment import Environment
from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.base import trainer_of
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.evaluate import Evaluation
from gnnexp.training.optimization import Optimization

_PLANETOID = ("dataset=planetoid", "dataset.sparse=false", "train=planetoid_gcn", "model=gcn", "sampler=full")
CASES = {
    "cora gcn": (*_PLANETOID, "dataset.name=cora"),
    "citeseer gcn": (*_PLANETOID, "dataset.name=citeseer", "train.epochs=100"),
    "digits sage": (
        "dataset=digits",
        "model=sage",
        "model.hidden=64",
        "model.layers=2",
        "sampler=fused",
        "sampler.fanouts=[10,10]",
        "train.epochs=20",
        "train.batch_size=256",
    ),
}
COMMON = (
    "paradigm=data_parallel",
    "tracker=none",
    "hardware.workers=1",
    "hardware.device=cpu",
    "hardware.threads=1",
    "train.overlap=false",
    "train.eval_every=0",
)
ROUNDED = {
    "float32": (),
    "products": ("train.matmul=bf16",),
    "products and rows": ("train.matmul=bf16", "train.activations=bf16"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    results: list[dict[str, Any]] = []
    for case, overrides in CASES.items():
        graph = experiment_of(compose([*overrides, *COMMON]).config).dataset.load()
        assert isinstance(graph, Graph)
        for rounded, more in ROUNDED.items():
            found = [trained([*overrides, *COMMON, *more, f"seed={seed}"], graph) for seed in seeds]
            per_cent = [round(100 * one["acc/test"], 2) for one in found]
            results.append(
                {
                    "case": case,
                    "bf16": rounded,
                    "overrides": [*overrides, *more],
                    "acc/test %": per_cent,
                    "mean": round(statistics.mean(per_cent), 2),
                    "stdev": round(statistics.stdev(per_cent), 2),
                    "loss": [float(f"{one['loss']:.5g}") for one in found],
                }
            )
            print(case, "|", rounded, "|", results[-1]["mean"], "±", results[-1]["stdev"], flush=True)
    print(keep("precision", {"common": COMMON, "seeds": len(seeds), "results": results}))


def trained(overrides: list[str], graph: Graph) -> dict[str, float]:
    """Test accuracy after the last epoch, and the mean loss of the last batch."""
    experiment = experiment_of(compose(overrides).config)
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment, Artifacts(graph), Path(folder), Environment())
        trainer = trainer_of(job)
        optimization = Optimization(job, trainer)
        trainer.module.train()
        for epoch in range(experiment.train.epochs):
            for batch in trainer.batches(epoch):
                loss, count = trainer.forward_backward(batch)
                trainer.synchronize()
                optimization.step()
            optimization.end_epoch({})
        metrics = Evaluation(job, trainer).after(experiment.train.epochs - 1)
        trainer.end_epoch()
        return {**metrics, "loss": float(loss) / count}


if __name__ == "__main__":
    main()
