"""Makes the components of one rank from an experiment, and connects the ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator, Meeting, connect
from gnnexp.comm.environment import Environment
from gnnexp.comm.mesh import Mesh
from gnnexp.comm.virtual import Turns, virtual_communicator
from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import target_of
from gnnexp.components.plan import Plan
from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.check import host_link_problems
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import as_seen, facts_of
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.embedding import EmbeddingStore
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, open_partition
from gnnexp.graph.parts import Parts, open_parts
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.storage.presample import open_presample
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.shape_tensor import shaped
from gnnexp.measure.marks import Marks, Measure
from gnnexp.measure.memory import reset_host_peak
from gnnexp.measure.phases import PhaseTimer
from gnnexp.models.layer import Degrees
from gnnexp.models.model import Model
from gnnexp.ops.backend import Backend
from gnnexp.ops.products import full_precision, matmul_facts
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.stay import device_limit
from gnnexp.preparation.preflight import estimate_memory
from gnnexp.tasks.base import Task
from gnnexp.tiers.link import HostLink
from gnnexp.tiers.tier import DeviceTier


@dataclass(frozen=True)
class Artifacts:
    """The artifacts that the launcher prepared, in memory or on disk.

    Attributes:
        graph: the graph, or its folder.
        partition: the owner of each vertex, or the folder of the partition; None if nothing needs it.
        frequency: `[V]` how often pre-sampled epochs read each vertex as an input, or their folder, or None.
        parts: folder of the parts if ranks train whole parts, else None. The rank then ignores `partition`.
        facts: facts of the graph that the launcher found; None: this rank finds them.
        plan: digest of the launcher's plan, empty if there is none.
    """

    graph: Graph | Path
    partition: Partition | Path | None = None
    frequency: Tensor | Path | None = None
    parts: Path | None = None
    facts: GraphFacts | None = None
    plan: str = ""


def assemble(
    experiment: Experiment,
    artifacts: Artifacts,
    directory: Path,
    environment: Environment,
    watch: Callable[[PhaseTimer], None] | None = None,
    turns: Turns | None = None,
) -> Job:
    """Make and set up all components that a trainer uses on this rank, and join the process group.

    `watch` gets the timer before the ranks meet: who waits for another rank there does not hang. With `turns`, the rank
    is a virtual one, whose features have no values.
    """
    hardware = experiment.hardware
    device = choose_device(hardware, environment)
    ConfigError.raise_all(host_link_problems(hardware, device.type))
    threads = set_threads(hardware, environment)
    full_precision()
    timer = _timer(device, experiment.measure)
    if watch is not None:
        watch(timer)
    with timer.activity.exchange():
        meeting = Meeting() if turns is not None else connect(environment, device, hardware.timeout_s, directory)
    with _from_cache(directory):
        graph = open_graph(artifacts.graph) if isinstance(artifacts.graph, Path) else artifacts.graph
    graph = as_seen(experiment, graph)
    if turns is not None:
        graph = without_values(graph)
    options: dict[str, Any] = {
        "timeout_s": hardware.timeout_s,
        "throttle": hardware.throttle,
        "halved": frozenset({"activations"} if experiment.train.activations == "bf16" else ()),
        "meeting": meeting,
    }
    if turns is None:
        comm = Communicator(environment, timer, device, **options)
    else:
        comm = virtual_communicator(turns, environment, timer, **options)
    chosen = {
        "host": environment.host,
        "device": _name(device),
        "comm_backend": meeting.carrier,
        "threads": threads,
        "throttle": None if hardware.throttle is None else f"emulated: {hardware.throttle:g} bytes/s",
        **({} if hardware.throttle_h2d is None else {"throttle_h2d": f"emulated: {hardware.throttle_h2d:g} bytes/s"}),
        "host_peak": "of each epoch" if reset_host_peak() else "since the process began: this system resets no peak",
    }
    with _from_cache(directory):
        parts = None if artifacts.parts is None else open_parts(artifacts.parts)
        shard = _shard(graph, artifacts, comm)
    graph_facts = artifacts.facts or facts_of(experiment, graph)
    plan = _planned(experiment, artifacts, graph_facts, parts)

    def placed(store: FeatureStore) -> str:
        return store.place(experiment.setting, graph_facts, lambda: _room(experiment, graph_facts, plan, comm, device))

    spare_maps = None if turns is None else turns.spare_maps
    return _job(experiment, plan, shard, comm, timer, device, directory, chosen, parts, placed, spare_maps)


def _room(
    experiment: Experiment, facts: GraphFacts, plan: Plan, comm: Communicator, device: torch.device
) -> tuple[int, int] | None:
    """Estimated bytes on a rank's device without features that stay there, and the bytes that every rank may use.

    None if a rank is on the CPU.
    """
    free = int(device_limit(experiment.hardware, device)) if device.type == "cuda" else None
    free_of_ranks: list[Any] = comm.gather_objects(free)
    if None in free_of_ranks:
        return None
    return estimate_memory(experiment, facts, plan, 0).total("device"), min(free_of_ranks)


def without_values(graph: Graph) -> Graph:
    """The graph with features that have a shape only. Sparse ones keep values: exchanges depend on their number."""
    features = graph.features
    return replace(graph, features=shaped(features.shape, features.dtype)) if isinstance(features, Tensor) else graph


def _planned(experiment: Experiment, artifacts: Artifacts, facts: GraphFacts, parts: Parts | None) -> Plan:
    """The plan of this rank, which must be equal to the launcher's plan.

    Raises:
        ConfigError: the plans differ, because this rank executes other code than the launcher.
    """
    plan = experiment.paradigm.plan(experiment, facts, None if parts is None else parts.sizes)
    if artifacts.plan not in ("", plan.digest):
        raise ConfigError(
            Problem(
                "paradigm",
                target_of(experiment.paradigm),
                "the plan of this rank differs from the "
                f"launcher's ({plan.digest} instead of {artifacts.plan}): the code was edited after "
                "the launch",
                "start a new run",
            )
        )
    return plan


@contextmanager
def _from_cache(run_dir: Path) -> Iterator[None]:
    """Name the fix for artifacts that were removed or damaged after the launcher prepared them."""
    try:
        yield
    except DataError as error:
        fix = f"gnnexp resume {run_dir} prepares it again"
        raise DataError([replace(problem, fix=fix) for problem in error.problems]) from None


def _shard(graph: Graph, artifacts: Artifacts, comm: Communicator) -> Shard:
    partition = artifacts.partition if artifacts.parts is None else None
    frequency = artifacts.frequency
    if isinstance(partition, Path):
        partition = open_partition(partition, graph=graph)
    if isinstance(frequency, Path):
        frequency = open_presample(frequency, graph).inputs
    part = _mesh(partition, comm).place("parts", comm.rank)
    return Shard(graph, comm.rank, comm.size, BlockNeeds(), partition, part, frequency)


def _mesh(partition: Partition | None, comm: Communicator) -> Mesh:
    """Groups of consecutive ranks. Each group has all parts of the partition; without one, all ranks are one group."""
    num_parts = comm.size if partition is None else partition.num_parts
    return Mesh.of(groups=comm.size // num_parts, parts=num_parts)


def _job(
    experiment: Experiment,
    plan: Plan,
    shard: Shard,
    comm: Communicator,
    timer: PhaseTimer,
    device: torch.device,
    directory: Path,
    facts: Mapping[str, Any],
    parts: Parts | None,
    placed: Callable[[FeatureStore], str],
    spare_maps: list[Any] | None,
) -> Job:
    model, graph = experiment.model.make(), shard.graph
    shard = replace(shard, needs=model.options.needs)
    mesh = _mesh(shard.partition, comm)
    group_comm, batch_comm = comm.along(mesh, "parts"), comm.clone_for_thread().along(mesh, "parts")
    dtype, seed = getattr(torch, experiment.train.dtype), experiment.seed
    sampler, store, task = experiment.sampler.make(), experiment.feature_store.make(), experiment.task.make()
    link = HostLink(experiment.hardware.throttle_h2d)
    ConfigError.raise_all(experiment.task.check_data(graph))
    sampler.spare_maps = spare_maps
    sampler.pool = pool = Pool()  # one pool for all components, because each pool keeps idle memory up to its limit
    if parts is None:  # else each part has its own sampler and store
        facts = {**facts, "sampling": sampler.place(experiment.setting, shard, device, comm)}
        sampler.setup(shard, model.num_layers)
        facts = {**facts, "features": placed(store)}
        store.setup(
            shard,
            dtype,
            torch.device("cpu") if plan.features_on_host else device,
            batch_comm,
            crosses=not plan.features_on_host,
            pool=pool,
            link=link,
        )
        facts = {**facts, **store.chosen}
        if isinstance(store, EmbeddingStore):
            store.begin(experiment.optimizer, seed)
    task.setup(graph, device)
    _set_up_model(model, experiment, task, graph, device, pool)
    return Job(
        experiment,
        plan,
        shard,
        comm,
        group_comm,
        batch_comm,
        timer,
        sampler,
        store,
        model,
        task,
        device,
        _tier(model.backend, device, timer, link),
        directory,
        {**facts, "kernel": model.backend.name, **matmul_facts(experiment.train.matmul, device)},
        parts,
    )


def _tier(backend: Backend, device: torch.device, timer: PhaseTimer, link: HostLink) -> DeviceTier:
    return DeviceTier(device, timer, reads_transpose=backend.reads_transpose, constants=backend.constants, link=link)


def _set_up_model(
    model: Model, experiment: Experiment, task: Task, graph: Graph, device: torch.device, pool: Pool
) -> None:
    """Set up a model, with the decoder of its task."""
    dtype, seed = getattr(torch, experiment.train.dtype), experiment.seed
    model.setup(
        graph.num_features,
        graph.num_classes,
        Degrees.of(graph),
        seed=seed,
        dtype=dtype,
        device=device,
        matmul=experiment.train.matmul,
        activations=experiment.train.activations,
        pool=pool,
        computes=not experiment.train.count_only,
    )
    model.decoder = task.decoder(graph.num_classes, seed=seed, dtype=dtype, device=device)


def choose_device(hardware: HardwareConfig, environment: Environment) -> torch.device:
    """The device of this rank. `auto` is cuda if a GPU is visible. If there are more ranks than GPUs, ranks share them.

    The device becomes the current device of the calling thread.
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
    """Set the number of threads in torch and numba, and return it. `hardware.threads=0` divides the machine's cores.

    Backward passes run on the calling thread. By default, autograd runs the backward pass of a GPU on a separate
    thread. Two ranks could then exchange in different orders, and the timer would not know the phase.
    """
    torch.autograd.set_multithreading_enabled(False)
    cores = len(os.sched_getaffinity(0))
    threads = hardware.threads or max(1, cores // environment.local_ranks)
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return threads


def _timer(device: torch.device, measure: Measure) -> PhaseTimer:
    exact = measure == "exact"
    if device.type != "cuda":
        return PhaseTimer(meets=exact)
    return PhaseTimer(lambda: torch.cuda.synchronize(device)) if exact else PhaseTimer(marks=Marks(device), meets=False)


def _name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"
