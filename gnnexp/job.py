"""What one rank needs: the parts of a run, put together by the worker, used by the paradigm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import Plan
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.trainable import TrainableStore
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.models.model import Model
from gnnexp.samplers.base import Sampler
from gnnexp.tasks.base import Task
from gnnexp.tiers.tier import DeviceTier

T = TypeVar("T")


class Once:
    """What is worked out once on a rank: the trainer that measures memory and the one that trains share it."""

    def __init__(self) -> None:
        self._made: dict[str, object] = {}

    def of(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gave when this name was first asked for."""
        if name not in self._made:
            self._made[name] = make()
        return cast("T", self._made[name])


@dataclass(frozen=True, eq=False)
class Job:
    """The parts of a run on one rank.

    Attributes:
        experiment: what every configuration group chose.
        plan: what the paradigm wants of it on this graph.
        shard: this rank's share of the graph.
        comm: collectives of all ranks.
        group_comm: collectives of the ranks that share the parts of one partition (all ranks, or a group of them).
        batch_comm: the same ranks, for the preparation of batches: host tensors, beside what training exchanges.
        timer: phases.
        sampler, store, model, task: the components, set up.
        device: where the model lives.
        tier: what chunked work puts on it.
        directory: the run directory.
        facts: what was chosen for the user and why (device, backend, threads); recorded.
        parts: of the graph, where ranks work on these; sampler and store are then not set up, each part has its own.
        once: what trainers share.
    """

    experiment: Experiment
    plan: Plan
    shard: Shard
    comm: Communicator
    group_comm: Communicator
    batch_comm: Communicator
    timer: PhaseTimer
    sampler: Sampler
    store: FeatureStore
    model: Model
    task: Task
    device: torch.device
    tier: DeviceTier
    directory: Path
    facts: Mapping[str, Any]
    parts: Parts | None = None
    once: Once = field(default_factory=Once)

    @property
    def trained_rows(self) -> TrainableStore | None:
        """The feature store, where its rows are trained."""
        return self.store if isinstance(self.store, TrainableStore) and self.parts is None else None

    @property
    def graph(self) -> Graph:
        """The rank's graph."""
        return self.shard.graph

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of parameters and activations."""
        return getattr(torch, self.experiment.train.dtype)  # type: ignore[no-any-return]
