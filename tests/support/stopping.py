"""Runs that are asked to stop in the middle, in ranks of a pool."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from gnnexp.comm.agreement import Agreement
from gnnexp.comm.environment import read_environment
from gnnexp.comm.slices import slices_of
from gnnexp.experiment.build import experiment_of
from gnnexp.paradigms.base import trainer_of
from gnnexp.record.records import EpochLog, read_epochs
from gnnexp.testing.exactness import cut_parts, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import probe_memory, train


def attempt(
    config: dict[str, Any],
    folder: str,
    stop_at: int | None,
    number: int = signal.SIGTERM,
    artifacts: Artifacts | None = None,
) -> dict[str, Any]:
    """What a rank of the pool runs; before step `stop_at` of the run the last rank is sent the signal.

    Returns:
        Who stopped it, the number of its steps, this rank's parameters, which of them are slices, all trained rows.
    """
    environment, directory = read_environment(), Path(folder)
    job = assemble(
        experiment_of(config), artifacts or _artifacts(config, environment.num_ranks), directory, environment
    )
    probed = probe_memory(job)
    trainer = trainer_of(job)
    steps, work = 0, trainer.forward_backward

    def interrupted(batch: Any) -> Any:
        nonlocal steps
        if steps == stop_at and environment.rank == environment.num_ranks - 1:
            os.kill(os.getpid(), number)
        steps += 1
        return work(batch)

    trainer.forward_backward = interrupted  # type: ignore[method-assign]
    asked_at_every_step = partial(Agreement, period_s=1e-9)
    with patch("gnnexp.training.interruption.Agreement", asked_at_every_step):
        stopped_by = train(job, trainer, EpochLog(directory, environment.rank), probed)
    state = {name: value.clone().cpu() for name, value in trainer.module.state_dict().items()}
    rows = None
    if job.trained_rows is not None:
        rows = torch.empty(
            job.graph.num_nodes, job.trained_rows.options.dim, dtype=getattr(torch, job.experiment.train.dtype)
        )
        job.trained_rows.gather(rows, job.comm)
    job.comm.release()
    slices = dict(slices_of(trainer.module))
    return {"stopped_by": stopped_by, "state": state, "steps": steps, "slices": slices, "rows": rows}


def _artifacts(config: dict[str, Any], size: int) -> Artifacts:
    """`nasty_graph`, and who owns what where the paradigm or the store want to know."""
    graph = nasty_graph()
    needed = "split" in str(config["paradigm"]) or "Partitioned" in str(config["feature_store"])
    partition = parts(graph, size) if needed else None
    if any(name in str(config["paradigm"]) for name in ("vertex_parallel", "offload")):
        partition = (cut_parts if "libra" in str(config["partitioner"]) else parts)(graph, size)
    return Artifacts(graph, partition)


def curve(folder: str) -> list[list[float]]:
    return [line["losses"] for line in read_epochs(Path(folder))]


_UNDISTURBED: dict[tuple[int, str], tuple[list[list[float]], list[dict[str, Any]]]] = {}


def undisturbed(ranks: Any, size: int, config: dict[str, Any]) -> tuple[list[list[float]], list[dict[str, Any]]]:
    """Losses and final states; several tests stop the same run, which is then run undisturbed only once."""
    key = (size, json.dumps(config, sort_keys=True))
    if key not in _UNDISTURBED:
        _UNDISTURBED[key] = _run_undisturbed(ranks, size, config)
    return _UNDISTURBED[key]


def _run_undisturbed(ranks: Any, size: int, config: dict[str, Any]) -> tuple[list[list[float]], list[dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        ended = ranks(size).run(attempt, config, folder, None)
        assert [end["stopped_by"] for end in ended] == [""] * size
        return curve(folder), ended
