"""The components of a run on one rank; the worker assembles them, and the paradigm uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.components.plan import Plan
from gnnexp.components.schema import Matmul
from gnnexp.experiment.experiment import Experiment
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.embedding import EmbeddingStore
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
    """Values that a rank computes once: the trainer that measures memory and the trainer that trains share them."""

    def __init__(self) -> None:
        self._made: dict[str, object] = {}

    def of(self, name: str, make: Callable[[], T]) -> T:
        """The result of `make` from the first call with this name."""
        if name not in self._made:
            self._made[name] = make()
        return cast("T", self._made[name])


@dataclass(frozen=True, eq=False)
class Job:
    """The components of a run on one rank.

    Attributes:
        experiment: choices of all configuration groups.
        plan: plan of the paradigm for this experiment and graph.
        shard: this rank's share of the graph.
        comm: collectives of all ranks.
        group_comm: collectives of the ranks that share the parts of one partition (all ranks, or a group of them).
        batch_comm: collectives of the same ranks for host tensors, which prepare batches while training exchanges rows.
        timer: time of each phase.
        sampler, store, model, task: components after their `setup`.
        device: device of the model.
        tier: the device tier (real or emulated) that chunked work copies into.
        directory: the run directory.
        facts: automatic choices and their reasons (device, backend, threads); recorded.
        parts: parts of the graph if ranks train on parts, else None. Sampler and store are then not set up, because
            each part has its own.
        once: values that the trainers share.
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
    def trained_rows(self) -> EmbeddingStore | None:
        """The feature store if its rows are trained, else None."""
        return self.store if isinstance(self.store, EmbeddingStore) and self.parts is None else None

    @property
    def stored_rows(self) -> str | None:
        """What the first layer does with rows that no pass writes as a matrix; None if it takes a matrix.

        This depends on the paradigm, the model's first layer, the kernels, and where rows are held. If all targets are
        one batch, its matrix is kept for all epochs.
        """
        size = self.experiment.train.batch_size
        several = size is not None and size < self.task.targets().numel()
        takes = several and self.parts is None and self.experiment.paradigm.reads_stored_rows
        return self.store.stored if takes and self.model.can_read_stored() else None

    @property
    def graph(self) -> Graph:
        """The rank's graph."""
        return self.shard.graph

    @property
    def matmul(self) -> Matmul:
        """How dense products round their factors."""
        return self.experiment.train.matmul

    @property
    def computes(self) -> bool:
        """Whether rows have values. If not, this rank is virtual and only counts (`train.count_only`)."""
        return not self.experiment.train.count_only

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of parameters and activations."""
        return getattr(torch, self.experiment.train.dtype)  # type: ignore[no-any-return]
