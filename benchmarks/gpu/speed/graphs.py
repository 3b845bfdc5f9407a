"""Epochs of full-graph training with and without a captured step (`train.cuda_graph`), and profiles of its kernels.

Both trainings have the same data. Their epochs alternate, so a clock that changes changes both. Losses must be equal.
A profile by Nsight Compute (`ncu`) needs its program on the machine, and the right to read the GPU's counters.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.needed import ROOT
from benchmarks.gpu.report import NOT_RUN, Row
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like
from benchmarks.gpu.speed.training import Training, refusal, sampled
from benchmarks.gpu.stage import Stage
from gnnexp.components.schema import WARM_UP_STEPS
from gnnexp.graph.graph import Graph
from gnnexp.ops.backends import kernel_problem
from gnnexp.testing.exactness import parts

# The scale of the products-like graph: with a small graph, launches are most of a step.
SCALE = 0.01
MODELS, KERNELS = ("gcn", "sage"), ("torch", "triton")
_EPOCHS, _QUICK_EPOCHS = 20, 1
# Sums of floats may be in another order if kernels choose so: relative error of a loss.
_SAME = 1e-6
_PROFILED_S = 60  # for a profile


def run(stage: Stage) -> bool:
    """Every model with every kernel, then the profile; whether there was time for all."""
    graph = products_like(QUICK_SCALE if stage.quick else SCALE, features=True)
    for model in MODELS:
        for kernel in KERNELS[:1] if stage.quick else KERNELS:  # the emulated device interprets Triton: minutes
            if kernel_problem(kernel, stage.device.type) is not None:
                continue
            if stage.left_s <= 0:
                return False
            name = f"{model}, {kernel}"
            stage.check(name, partial(_rows, stage, name, configuration(model, kernel, quick=stage.quick), graph))
    if stage.left_s <= _PROFILED_S and not stage.quick:
        return False
    stage.check("ncu", partial(_profile, stage))
    return True


def configuration(model: str, kernel: str, *, quick: bool) -> dict[str, Any]:
    """Three layers on the full graph, which one rank holds on its GPU."""
    config = sampled(model, kernel, steps=1, quick=quick, measure="free")
    config["train"] |= {"batch_size": None, "steps_per_epoch": None}
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    config["paradigm"] = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel"}
    return config


def captured(config: dict[str, Any]) -> dict[str, Any]:
    """The same with a captured step."""
    return {**config, "train": {**config["train"], "cuda_graph": True}}


def _rows(stage: Stage, name: str, config: dict[str, Any], graph: Graph) -> Iterator[Row]:
    if reason := refusal(captured(config)):
        yield Row(name, words=f"{NOT_RUN}: {reason}")
        return
    configs = {"plain": config, "captured": captured(config)}
    ways = {way: Training(one, graph, parts(graph, 1)) for way, one in configs.items()}
    losses: dict[str, list[float]] = {way: [] for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    launches = {}
    epochs = WARM_UP_STEPS + 1 + (_QUICK_EPOCHS if stage.quick else _EPOCHS)
    for epoch in range(epochs + 1):
        for way, training in ways.items():
            trace = stage.report.folder / "traces" / f"graphs_{way}_{name.replace(', ', '_')}.json.gz"
            ended = training.epoch(epoch, trace if epoch == epochs else None)
            losses[way].append(ended.loss)
            if WARM_UP_STEPS < epoch < epochs:
                seconds[way].append(ended.times.epoch_s)
            launches[way] = ended.trace.get("launches", 0.0)
    for training in ways.values():
        training.release()
    error = max(abs(one - other) / abs(one) for one, other in zip(losses["plain"], losses["captured"], strict=True))
    yield Row(name, error <= _SAME, error, "relative error of a loss", words=f"{epochs + 1} epochs")
    for way in ways:
        found = tuple(seconds[way])
        yield Row(f"{name}, {way}", value=statistics.median(found), unit="s an epoch", values=found)
        yield Row(f"{name}, {way}, launches", value=launches[way], unit="launches")
    yield Row(
        f"{name}, speedup",
        value=statistics.median(seconds["plain"]) / statistics.median(seconds["captured"]),
        unit="ratio",
    )


def _profile(stage: Stage) -> Row:
    """Nsight Compute's figures of the kernels of one step, as text: `DIR/ncu.txt`."""
    program = shutil.which("ncu")
    if program is None:
        return Row("ncu", words=f"{NOT_RUN}: ncu is not on this machine")
    if stage.emulated:
        return Row("ncu", words=f"{NOT_RUN}: an emulated GPU has no counters")
    command = [
        program,
        "--launch-skip",
        "400",
        "--launch-count",
        "40",
        "--section",
        "SpeedOfLight",
        "--section",
        "Occupancy",
        sys.executable,
        "-m",
        "benchmarks.gpu.speed.graphs",
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_PROFILED_S)
    except subprocess.TimeoutExpired:
        return Row("ncu", words=f"{NOT_RUN}: it took more than {_PROFILED_S} s")
    (stage.report.folder / "ncu.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        return Row("ncu", words=f"{NOT_RUN}: it ended with code {done.returncode}: {' '.join(last)[:200]}")
    return Row("ncu", value=float(done.stdout.count("Duration")), unit="kernels", words="ncu.txt")


def main() -> None:
    """What is profiled: a few epochs without a graph."""
    torch.cuda.set_device(0)
    kernel = "torch" if kernel_problem("triton", "cuda") else "triton"
    graph = products_like(SCALE, features=True)
    training = Training(configuration("sage", kernel, quick=False), graph, parts(graph, 1))
    for epoch in range(4):
        training.epoch(epoch)
    training.release()


if __name__ == "__main__":
    main()
