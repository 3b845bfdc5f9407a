"""`Experiment`: a run as one typed value, with the choice of each configuration group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from gnnexp.components.locate import target_of
from gnnexp.components.optimizer import OptimizerChoice
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem, Refusal
from gnnexp.experiment.resolved import ResolvedConfig
from gnnexp.measure.marks import Measure

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from gnnexp.components.facts import GraphFacts
    from gnnexp.components.plan import Plan, Sizes
    from gnnexp.datasets.base import Dataset
    from gnnexp.feature_stores.base import FeatureStoreOptions
    from gnnexp.launchers.base import Launcher
    from gnnexp.models.model import ModelOptions
    from gnnexp.partitioners.base import Partitioner
    from gnnexp.samplers.base import SamplerOptions
    from gnnexp.tasks.base import TaskOptions
    from gnnexp.trackers.base import Tracker


@dataclass(frozen=True, eq=False)
class Schedule:
    """How learning rates change during training.

    Attributes:
        make: makes the scheduler of an optimizer.
        interval: whether the scheduler advances after each `epoch` or each `step`.
        monitor: metric of the epoch record for schedulers that read one (`ReduceLROnPlateau`).
    """

    make: Callable[[Optimizer], LRScheduler]
    interval: Literal["epoch", "step"] = "epoch"
    monitor: str = "loss/train"


@dataclass(frozen=True)
class Method(ABC):
    """How a run is made: a `Paradigm` of gnnexp trains, or a `Command` of somebody else does.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        takes_vertex_cut: whether in-edges of a vertex may have different owners (`Partitioner.vertex_cut`).
        reads_rows_on_gpu: whether each rank reads whole rows of features for its batches: they may be on its GPU.
        reads_narrow_rows: whether all rows of features come from the store onto the device, which may widen them there.
        reads_stored_rows: whether the first layer gets a batch's rows from the store alone, so it may read them there.
    """

    version: ClassVar[int] = 1
    takes_vertex_cut: ClassVar[bool] = False
    reads_rows_on_gpu: ClassVar[bool] = False
    reads_narrow_rows: ClassVar[bool] = False
    reads_stored_rows: ClassVar[bool] = False

    @abstractmethod
    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether the run needs a partition."""

    def ranks_together(self, experiment: Experiment) -> int:
        """Number of consecutive ranks that share the parts of one partition: all ranks by default.

        With groups (`group_size` of split_parallel), these are the ranks of one group.
        """
        return experiment.num_ranks

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts with the other choices of the experiment."""
        return []

    def refuses_gpu_sampling(self, experiment: Experiment) -> Refusal | None:
        """Why batches are made on the host although the run has GPUs; None: a sampler may make them on a GPU."""
        return Refusal("this paradigm samples on the host")

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """Why rows between layers cannot be in bfloat16 (`train.activations`); None: they can."""
        return Refusal("this paradigm exchanges other values than the rows of layers: sums, columns or parts of rows")

    def refuses_capture(self, experiment: Experiment) -> Refusal | None:
        """Why a step cannot be captured as a CUDA graph (`train.cuda_graph`); None: it can."""
        return Refusal("its batches differ from step to step, or its steps wait for copies")

    @abstractmethod
    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """What the run needs for an experiment on a graph.

        Args:
            experiment: an experiment without conflicts.
            facts: sizes of the graph.
            sizes: sizes of the parts, if ranks work on parts that are already cut.
        """


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked configuration, with one value per group. The launcher and all ranks have the same.

    Attributes:
        dataset, partitioner, paradigm, launcher, tracker: the components themselves.
        sampler, feature_store, model, task: options, of which each rank makes its objects.
        optimizer: a choice whose `make` takes parameters.
        schedule: schedule of learning rates; None: constant learning rates.
        train: hyper-parameters; `batch_size` counts the targets of a global batch.
        hardware: where ranks run.
        config: the configuration that this experiment was made from, to be written and compared.
        seed: seed of all random draws.
        system, name: names of the preset and of the run, or None.
        preflight: what happens if memory is not sufficient: `refuse`, `warn` or `off`.
        measure: whether the host waits at boundaries of phases (`exact`), or nothing waits (`free`).
        trace: number of the epoch, from 0, that is traced; None: no epoch is.
    """

    dataset: Dataset
    partitioner: Partitioner
    sampler: SamplerOptions
    feature_store: FeatureStoreOptions
    model: ModelOptions
    task: TaskOptions
    paradigm: Method
    optimizer: OptimizerChoice
    schedule: Schedule | None
    train: TrainConfig
    hardware: HardwareConfig
    launcher: Launcher
    tracker: Tracker
    config: ResolvedConfig
    seed: int = 0
    system: str | None = None
    name: str | None = None
    preflight: str = "refuse"
    measure: Measure = "exact"
    trace: int | None = None

    @property
    def num_ranks(self) -> int:
        """Number of ranks on all machines."""
        return self.hardware.num_ranks

    @property
    def processes(self) -> HardwareConfig:
        """Where the processes of the run are: one for each rank, or one for all virtual ranks (`train.count_only`)."""
        return replace(self.hardware, nodes=1, workers=1) if self.train.count_only else self.hardware

    @cached_property
    def setting(self) -> Setting:
        """What the options of sampler, feature store, model and task may know of the other choices."""
        paradigm, model = self.paradigm, self.model
        return Setting(
            train=self.train,
            hardware=self.hardware,
            optimizer=self.optimizer,
            ranks_together=paradigm.ranks_together(self),
            reads_rows_on_gpu=paradigm.reads_rows_on_gpu,
            reads_narrow_rows=paradigm.reads_narrow_rows,
            sampling_on_gpu=paradigm.refuses_gpu_sampling(self),
            rounded_rows=paradigm.refuses_rounded_rows(self),
            kernel=model.kernel,
            edge_identity=model.needs.edge_identity,
            scales=self.sampler.scales,
            sampler=target_of(self.sampler),
            wants_partition=paradigm.wants_partition(self),
            takes_vertex_cut=paradigm.takes_vertex_cut,
            even_shares=vars(paradigm).get("assign") == "even",
            paradigm=type(paradigm).__module__.rpartition(".")[2],
        )
