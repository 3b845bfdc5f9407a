"""Count the work of real steps at full size on the emulated device: about 5 minutes and 5 GB.

    TRITON_INTERPRET=1 python -m emulated_gpu -m benchmarks.gpu.estimate.count

The graph is the generator's products-like graph of full size. Its features are zeros, since no count depends on them.
Each step is that of `gnnexp run dataset=dcsbm dataset.shape=products_like sampler.device=cuda feature_store.tier=device
measure=free`. Triton's kernels are not run but counted (`kernels`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.gpu.estimate.kernels import SampledByTriton, kernel_work, record_launches
from benchmarks.gpu.estimate.work import Meter, Work
from emulated_gpu import counting
from gnnexp.comm.environment import read_environment
from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.block import Batch
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.base import trainer_of
from gnnexp.record.records import write_json
from gnnexp.samplers import fused
from gnnexp.testing.steps import optimizer, small_config
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

COUNTS = Path(__file__).parents[2] / "results" / "gpu" / "estimate_counts.json"
KERNELS = ("torch", "triton")
_WARM_UP = 1  # the first batch is also made on the host, and compared


def configuration(kernel: str, device: str, tier: str, fanouts: list[int], batch_size: int) -> dict[str, Any]:
    """The resolved configuration of the counted steps: three layers of GraphSAGE, 256 wide, in float32.

    Args:
        kernel: of the layers.
        device: `cuda` or `cpu`.
        tier: where the features are: `device` or `host`.
        fanouts: of the hops, target hop first.
        batch_size: targets of a step.
    """
    model = {
        "_target_": "gnnexp.models.sage.SAGEOptions",
        "hidden": 256,
        "layers": len(fanouts),
        "dropout": 0.5,
        "input_dropout": 0.0,
        "kernel": kernel,
    }
    return {
        **small_config(
            model,
            sampler={"fanouts": fanouts, "device": "auto"},
            feature_store={"tier": tier},
            train={"batch_size": batch_size, "dtype": "float32"},
            hardware={"device": device},
        ),
        "measure": "free",
        "optimizer": optimizer(fused=True),
        "seed": 0,
    }


def products_like(scale: float) -> Graph:
    """The topology, labels and splits of the generator, and 100 columns of zeros as features."""
    graph = Dcsbm(shape="products_like", scale=scale, num_features=1).load()
    return replace(graph, features=torch.zeros(graph.num_nodes, 100))


def counted_steps(
    config: Mapping[str, Any], graph: Graph, steps: int, *, uncounted: bool = False
) -> list[dict[str, Any]]:
    """What each of some steps does, after one that warms up.

    Args:
        config: resolved configuration.
        graph: the graph.
        steps: number of steps.
        uncounted: whether there is no emulated device: then `totals` is empty.

    Returns:
        For each step: `layers` with `edges`, `destinations` and `sources` of each block, input side first; `totals` of
        the emulated device, and `work` by part and kernel.
    """
    meters: list[Meter] = []

    def current() -> Meter | None:
        return meters[-1] if meters else None

    def record(name: str, arguments: Mapping[str, Any]) -> None:
        if meters:
            meters[-1].add(name, kernel_work(name, arguments))

    by_triton = config["model"]["kernel"] == "triton"
    if by_triton:
        record_launches(record)
    sampled = patch.object(fused, "kernels_for", lambda *_: SampledByTriton(current)) if by_triton else nullcontext()
    found = []
    with tempfile.TemporaryDirectory() as folder, sampled:
        job = assemble(experiment_of(config), Artifacts(graph), Path(folder), read_environment())
        trainer = trainer_of(job)
        optimization, batches = Optimization(job, trainer), _endless(trainer)
        trainer.module.train()
        for step in range(_WARM_UP + steps):
            meter = Meter(lambda: str(job.timer.current or "between"), job.device.type)
            with ExitStack() as stack:
                totals: Mapping[str, int] = {}
                if step >= _WARM_UP:
                    totals = totals if uncounted else stack.enter_context(counting()).totals
                    meters.append(meter)
                    stack.enter_context(meter)
                ready = next(batches)
                trainer.forward_backward(ready)
                trainer.synchronize()
                with job.timer.phase("update"):
                    optimization.step()
            if step >= _WARM_UP:
                found.append({"layers": _layers(ready.batch), "totals": dict(totals), "work": dict(meter.found)})
            del ready
        job.comm.release()
    return found


def _endless(trainer: Any) -> Iterator[Any]:  # noqa: ANN401
    epoch = 0
    while True:
        yield from trainer.batches(epoch)
        epoch += 1


def _layers(batch: Batch) -> list[dict[str, int]]:
    return [
        {"edges": block.num_edges, "destinations": block.num_dst, "sources": block.num_src} for block in batch.blocks
    ]


def mean(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over steps, for JSON."""
    layers = [
        {name: round(statistics.mean(step["layers"][place][name] for step in steps)) for name in one}
        for place, one in enumerate(steps[0]["layers"])
    ]
    totals = {
        name: statistics.mean(step["totals"].get(name, 0) for step in steps)
        for name in sorted({name for step in steps for name in step["totals"]})
    }
    work: dict[tuple[str, str], Work] = {}
    for step in steps:
        for place, one in step["work"].items():
            work[place] = work.get(place, Work()) + one
    return {
        "layers": layers,
        "totals": totals,
        "work": [
            {"part": part, "kernel": kernel, **{name: value / len(steps) for name, value in asdict(one).items()}}
            for (part, kernel), one in work.items()
        ],
    }


def main() -> None:
    """Count with both kernels, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--out", type=Path, default=COUNTS)
    options = parser.parse_args()
    graph = products_like(options.scale)
    found: dict[str, Any] = {
        "how": "python -m emulated_gpu -m benchmarks.gpu.estimate.count, TRITON_INTERPRET=1; see count.py",
        "graph": {
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "num_features": 100,
            "num_train": graph.splits.train.numel(),
            "scale": options.scale,
        },
        "batch_size": 1024,
        "fanouts": [15, 10, 5],
        "steps": options.steps,
        "epoch_steps": -(-graph.splits.train.numel() // 1024),
        "torch": torch.__version__,
    }
    for kernel in KERNELS:
        config = configuration(kernel, "cuda", "device", [15, 10, 5], 1024)
        found[kernel] = mean(counted_steps(config, graph, options.steps))
        print(kernel, found[kernel]["layers"], found[kernel]["totals"], flush=True)
    tiny = Dcsbm(num_nodes=2000, num_edges=20000, num_features=16).load()
    small = configuration("torch", "cuda", "host", [2, 2, 2], 8)
    small["model"]["hidden"], small["sampler"]["device"], small["measure"] = 16, "cpu", "exact"
    found["calibrated step"] = mean(counted_steps(small, tiny, 2))
    write_json(options.out, found)


if __name__ == "__main__":
    main()
