"""A run as one typed value: what every configuration group chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from gnnexp.experiment.resolved import Resolved
from gnnexp.experiment.schema import HardwareConfig, TrainConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from gnnexp.datasets.base import Dataset
    from gnnexp.feature_stores.base import FeatureStore
    from gnnexp.launchers.base import Launcher
    from gnnexp.models.model import Model
    from gnnexp.paradigms.base import Paradigm
    from gnnexp.partitioners.base import Partitioner
    from gnnexp.samplers.base import Sampler
    from gnnexp.tasks.base import Task
    from gnnexp.trackers.base import Tracker

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Choice(Generic[T]):
    """The choice of a group whose objects carry state, or are needed several times (sampler, store, model, task).

    Attributes:
        target: dotted name of the class, for messages.
        options: an object that nobody sets up: its attributes are the options that were chosen.
        node: the options as the configuration has them, to be compared.
        make: gives a new object of these options; keywords change some of those that the configuration has.
    """

    target: str
    options: T
    node: Resolved
    make: Callable[..., T]


@dataclass(frozen=True, eq=False)
class Schedule:
    """How learning rates change during training.

    Attributes:
        make: gives the scheduler of an optimizer.
        interval: whether it advances after every `epoch` or after every `step`.
        monitor: the metric of the epoch record that a scheduler reads that asks for one (`ReduceLROnPlateau`).
    """

    make: Callable[[Optimizer], LRScheduler]
    interval: Literal["epoch", "step"] = "epoch"
    monitor: str = "loss/train"


@dataclass(frozen=True, eq=False)
class Experiment:
    """What is run: one value for each configuration group, checked, and the same in the launcher and on every rank.

    Attributes:
        dataset, partitioner, paradigm, launcher, tracker: the components themselves.
        sampler, feature_store, model, task: choices, of which ranks make their objects.
        optimizer: a choice whose objects are made of parameters.
        schedule: of learning rates; None: they stay as they are.
        train: hyper-parameters; `batch_size` is that of a global batch.
        hardware: where ranks run.
        config: what it was made of, to be written down and compared.
        seed: of everything that is drawn.
        system, name: of the preset and of the run, if they have one.
        preflight: `refuse`, `warn` or `off`: what is done about memory that is not there.
    """

    dataset: Dataset
    partitioner: Partitioner
    sampler: Choice[Sampler]
    feature_store: Choice[FeatureStore]
    model: Choice[Model]
    task: Choice[Task]
    paradigm: Paradigm
    optimizer: Choice[Optimizer]
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

    @property
    def num_ranks(self) -> int:
        """Ranks over all machines."""
        return self.hardware.num_ranks


def target_of(component: object) -> str:
    """The dotted name of a component's class, for messages."""
    return f"{type(component).__module__}.{type(component).__qualname__}"
