"""Training on emulated GPUs with and without captured steps (`train.cuda_graph`), epoch by epoch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from full_graph import full_config
from torch import Tensor

from emulated_gpu import counting, is_wanted
from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.measure.ledger import Tag, Traffic
from gnnexp.measure.phases import PhaseTimes
from gnnexp.paradigms.base import trainer_of
from gnnexp.testing.exactness import cut_parts, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.evaluate import Evaluation
from gnnexp.training.optimization import Optimization

LIBRA = {"_target_": "gnnexp.partitioners.libra.LibraPartitioner"}


@dataclass(frozen=True)
class Ended:
    """Training on one rank.

    Attributes:
        losses: loss sum of every epoch.
        gradients: the flat gradients of every epoch, after the sum over ranks.
        parameters: at the end.
        work, batches, traffic: counts of every epoch.
        times: of the last epoch.
        launches, waits: of the last epoch.
        captured_bytes: of the last epoch.
    """

    losses: list[float]
    gradients: list[Tensor]
    parameters: list[Tensor]
    work: list[dict[str, int]]
    batches: list[dict[str, list[list[int]]]]
    traffic: list[dict[Tag, tuple[int, int]]]
    times: PhaseTimes
    exchanges: dict[Tag, float]
    launches: int
    waits: int
    captured_bytes: int


def captured_config(
    model: str,
    paradigm: Mapping[str, Any],
    *,
    captured: bool,
    kernel: str = "torch",
    cut: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """Full-graph training on GPUs with `measure=free`."""
    train = {"epochs": 8, "cuda_graph": captured, "eval_every": 1, **changes.pop("train", {})}
    config = full_config(model, paradigm, hardware={"device": "cuda"}, **changes)
    config["train"] |= train
    config["model"] = {**config["model"], "kernel": kernel}
    config["measure"] = "free"
    return {**config, "partitioner": LIBRA} if cut else config


def trained(
    config: Mapping[str, Any], epochs: int = 6, *, evaluate: bool = False, make: Callable[[], Graph] = nasty_graph
) -> Ended:
    """Train on this rank. With `evaluate`, the model is evaluated after every epoch."""
    environment = read_environment()
    graph = make()
    cut = "libra" in config["partitioner"]["_target_"]
    partition = (cut_parts if cut else parts)(graph, environment.num_ranks)
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(config), Artifacts(graph, partition), Path(folder), environment)
        trainer = trainer_of(job)
        optimization, evaluation = Optimization(job, trainer), Evaluation(job, trainer) if evaluate else None
        ended = Ended([], [], [], [], [], [], job.timer.end_epoch(), {}, 0, 0, 0)
        job.comm.ledger.take()
        for epoch in range(epochs):
            trainer.module.train()
            job.timer.start_epoch()
            with counting() if is_wanted() else nullcontext() as counts:
                for batch in trainer.batches(epoch):
                    loss, _ = trainer.forward_backward(batch)
                    trainer.synchronize()
                    ended.gradients.append(torch.cat([p.grad.flatten() for p in trainer.module.parameters()]))
                    with job.timer.phase("update"):
                        optimization.step()
            found, times = trainer.end_epoch(), job.timer.end_epoch()
            ended.losses.append(float(loss))
            ended.work.append(found.work)
            ended.batches.append(found.batches)
            ended.traffic.append(_counted(job.comm.ledger.take()))
            metrics = {} if evaluation is None else dict(evaluation.after(epoch))
            optimization.end_epoch(metrics)
            job.comm.ledger.take()
        ended.gradients[:] = [gradient.cpu() for gradient in ended.gradients]
        ended.parameters.extend(p.detach().cpu() for p in trainer.module.parameters())
        exchanges = job.timer.take_exchanges()
        del trainer, optimization, evaluation
        job.comm.release()
    return Ended(
        **{
            **vars(ended),
            "times": times,
            "exchanges": exchanges,
            "captured_bytes": found.captured_bytes,
            **({} if counts is None else {"launches": counts.totals["launches"], "waits": counts.totals["waits"]}),
        }
    )


def _counted(traffic: Mapping[Tag, Traffic]) -> dict[Tag, tuple[int, int]]:
    return {tag: (one.sent_bytes, one.rounds) for tag, one in traffic.items()}


def assert_same(plain: Ended, captured: Ended) -> None:
    """Everything that a run records and learns is the same, bit for bit."""
    assert captured.losses == plain.losses
    assert all(torch.equal(one, other) for one, other in zip(captured.gradients, plain.gradients, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(captured.parameters, plain.parameters, strict=True))
    assert (captured.batches, captured.traffic) == (plain.batches, plain.traffic)
    replayed = [work.pop("steps_replayed", 0) for work in captured.work]
    assert captured.work == plain.work
    assert replayed == [0, 0, *[1] * (len(replayed) - 2)], "the first two epochs warm up"
