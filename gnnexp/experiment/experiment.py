"""`Experiment`: a run as one typed value, with the choice of each configuration group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from gnnexp.components.locate import target_of
from gnnexp.components.optimizer import OptimizerChoice
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.setting import Setting
from gnnexp.experiment.resolved import Resolved
from gnnexp.measure.marks import Measure

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from gnnexp.datasets.base import Dataset
    from gnnexp.feature_stores.base import FeatureStoreOptions
    from gnnexp.launchers.base import Launcher
    from gnnexp.models.model import ModelOptions
    from gnnexp.paradigms.base import Method
    from gnnexp.paradigms.external.command import Command
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
    config: Resolved
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

    @cached_property
    def command(self) -> Command | None:
        """The command that trains instead of gnnexp (`paradigm=external`); None if gnnexp trains."""
        return cast("Command", self.paradigm) if self.paradigm.is_command else None

    @property
    def program_files(self) -> list[Path]:
        """Files outside of gnnexp that the run executes as programs. Their content identifies it."""
        return [] if self.command is None else self.command.own_files()

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
        )
