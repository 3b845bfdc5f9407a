"""Putting one rank's parts together from the resolved configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator, connect
from gnnexp.comm.environment import Environment
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import build
from gnnexp.experiment.schema import HardwareConfig, RunConfig, run_config
from gnnexp.experiment.seen import as_seen
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.trainable import TrainableStore
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, open_partition
from gnnexp.graph.parts import Parts, open_parts
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.storage.presample import open_presample
from gnnexp.job import Job
from gnnexp.kernels.pool import Pool
from gnnexp.measure.memory import resets_host_peak
from gnnexp.measure.phases import Delay, PhaseTimer
from gnnexp.models.layer import GraphFacts
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.samplers.base import Sampler
from gnnexp.tasks.base import Task
from gnnexp.tiers.tier import DeviceTier


@dataclass(frozen=True)
class Artifacts:
    """What the launcher prepared: the graph, and what the paradigm and the store want beside it, in memory or on disk.

    Attributes:
        graph: the graph, or its folder.
        partition: who owns which vertex, or its folder; None if nothing wants to know.
        frequency: `[V]` how often each vertex is read as an input, or the folder of the pre-sampled epochs, or None.
        parts: folder of the parts, where ranks work on these; the partition is then their business.
    """

    graph: Graph | Path
    partition: Partition | Path | None = None
    frequency: Tensor | Path | None = None
    parts: Path | None = None


def assemble(
    config: Mapping[str, Any], artifacts: Artifacts, directory: Path, environment: Environment
) -> tuple[Job, Paradigm[Any]]:
    """Build every component of `config` for this rank and set it up; joins the process group."""
    run = run_config(config)
    device = choose_device(run.hardware, environment)
    threads = set_threads(run.hardware, environment)
    backend = connect(environment, device, run.hardware.timeout_s)
    with _from_cache(directory):
        graph = open_graph(artifacts.graph) if isinstance(artifacts.graph, Path) else artifacts.graph
    graph = as_seen(config, graph)
    timer = PhaseTimer(_synchronizer(device), _delay(run.hardware, environment.rank))
    comm = Communicator(
        environment, timer, device, timeout_s=run.hardware.timeout_s, throttle=run.hardware.throttle
    )
    facts = {
        "host": environment.host, "device": _name(device), "comm_backend": backend, "threads": threads,
        "throttle": None if run.hardware.throttle is None else f"emulated: {run.hardware.throttle:g} bytes/s",
        "host_peak": "of each epoch" if resets_host_peak() else "since the process began: this system resets no peak",
        "straggler": None if run.hardware.straggler is None else vars(run.hardware.straggler),
    }
    paradigm: Paradigm[Any] = build(config["paradigm"], Paradigm)
    with _from_cache(directory):
        parts = None if artifacts.parts is None else open_parts(artifacts.parts)
        shard = _shard(graph, artifacts, comm)
    job = _job(config, run, shard, comm, timer, device, directory, facts,
               on_host=paradigm.updates_on_host, parts=parts)
    paradigm.setup(job)
    return job, paradigm


@contextmanager
def _from_cache(run_dir: Path) -> Iterator[None]:
    """What the launcher prepared may have been removed or damaged since; whoever prepares it again mends both."""
    try:
        yield
    except DataError as error:
        mend = f"gnnexp resume {run_dir} prepares it again"
        raise DataError([replace(problem, mend=mend) for problem in error.problems]) from None


def _shard(graph: Graph, artifacts: Artifacts, comm: Communicator) -> Shard:
    partition = artifacts.partition if artifacts.parts is None else None
    frequency = artifacts.frequency
    if isinstance(partition, Path):
        partition = open_partition(partition, graph=graph)
    if isinstance(frequency, Path):
        frequency = open_presample(frequency, graph).inputs
    num_parts = comm.size if partition is None else partition.num_parts
    return Shard(graph, comm.rank, comm.size, BlockNeeds(), partition, comm.rank % num_parts, frequency)


def _job(
    config: Mapping[str, Any], run: RunConfig, shard: Shard, comm: Communicator, timer: PhaseTimer,
    device: torch.device, directory: Path, facts: Mapping[str, Any], *, on_host: bool,
    parts: Parts | None,
) -> Job:
    model, graph = build(config["model"], Model), shard.graph
    shard = replace(shard, needs=model.needs)
    group_size = comm.size if shard.partition is None else shard.num_parts
    group_comm, batch_comm = comm.within(group_size), comm.beside().within(group_size)
    dtype = getattr(torch, run.train.dtype)
    sampler, store, task = (
        build(config["sampler"], Sampler), build(config["feature_store"], FeatureStore), build(config["task"], Task)
    )
    if problems := task.check(graph):
        raise ConfigError(problems)
    sampler.pool = pool = Pool()  # one for all: each keeps what is idle up to its limit
    store.draw_from(pool)
    if parts is None:  # else each part has a sampler and a store of its own
        sampler.setup(shard, model.num_layers)
        store.setup(shard, dtype, torch.device("cpu") if on_host else device, batch_comm, crosses=not on_host)
        if isinstance(store, TrainableStore):
            store.begin(run.train, run.seed)
    task.setup(graph, device)
    model.setup(graph.num_features, graph.num_classes, GraphFacts.of(graph), seed=run.seed, dtype=dtype, device=device)
    assert model.backend is not None
    model.backend.draw_from(pool)
    model.decoder = task.decoder(graph.num_classes, seed=run.seed, dtype=dtype, device=device)
    return Job(
        run, config, shard, comm, group_comm, batch_comm, timer, sampler, store, model, task, device,
        DeviceTier(device, timer, reads_transpose=model.backend.reads_transpose), directory, facts, parts
    )


def choose_device(hardware: HardwareConfig, environment: Environment) -> torch.device:
    """The device of this rank: `auto` is cuda where there is one; ranks beyond the GPUs share them.

    It becomes the current device of the calling thread.
    """
    available = torch.cuda.is_available()
    if hardware.device == "cuda" and not available:
        raise ConfigError(Problem("hardware.device", "cuda", "no CUDA device is visible", "set hardware.device=cpu"))
    if hardware.device == "cpu" or not available:
        return torch.device("cpu")
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def set_threads(hardware: HardwareConfig, environment: Environment) -> int:
    """Threads of this rank in torch and numba; 0 shares the machine's cores between its ranks.

    Backward passes stay on the thread that asks for them. Left to itself autograd runs those of a GPU on a thread of
    the device's own: two ranks could then exchange in different orders, and nobody would know which phase it is.
    """
    torch.autograd.set_multithreading_enabled(False)
    cores = len(os.sched_getaffinity(0))
    threads = hardware.threads or max(1, cores // environment.local_ranks)
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return threads


def _synchronizer(device: torch.device) -> Any:  # noqa: ANN401
    if device.type != "cuda":
        return None
    return lambda: torch.cuda.synchronize(device)


def _delay(hardware: HardwareConfig, rank: int) -> Delay | None:
    straggler = hardware.straggler
    return None if straggler is None or straggler.rank != rank else Delay(straggler.phase, straggler.seconds)


def _name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"
