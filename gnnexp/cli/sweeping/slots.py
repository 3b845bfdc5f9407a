"""`--jobs N`: the cores and GPUs of this machine shared out evenly, so that each case has its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.local import LocalLauncher
from gnnexp.provenance.machine import CASES_VARIABLE, Node, cores_by_threads, this_node


@dataclass(frozen=True)
class Slot:
    """What a case has of the machine.

    Attributes:
        cores: each as the numbers of its hardware threads.
        gpus: as `CUDA_VISIBLE_DEVICES` names them.
        num_cases: how many slots there are.
    """

    cores: tuple[tuple[int, ...], ...]
    gpus: tuple[str, ...]
    num_cases: int

    @property
    def node(self) -> Node:
        """The machine as a record of the case describes it."""
        return replace(this_node(), cores=len(self.cores), num_cases=self.num_cases)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the case's process, and of all that it starts."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if this_node().gpus else {}
        return os.environ | gpus | {CASES_VARIABLE: str(self.num_cases)}

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """A process that this thread starts inside runs on the cores of the slot."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {number for core in self.cores for number in core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def make_slots(num_cases: int, experiments: Sequence[Experiment]) -> list[Slot]:
    """A slot for each of `num_cases` cases at a time, all of the same size.

    Raises:
        ConfigError: the ranks of that many of the `experiments` need more cores or GPUs than there are.
    """
    cores, gpus = cores_by_threads()[:this_node().cores], visible_gpus()
    local = [one.hardware for one in experiments if isinstance(one.launcher, LocalLauncher)]
    ranks = max((one.workers for one in local), default=1)
    on_gpus = max((one.workers for one in local if gpus and one.device != "cpu"), default=0)
    ConfigError.raise_all(_short(num_cases, ranks, len(cores), "cores") + _short(num_cases, on_gpus, len(gpus), "GPUs"))
    each, cards = len(cores) // num_cases, len(gpus) // num_cases
    return [Slot(tuple(map(tuple, cores[n * each:(n + 1) * each])), tuple(gpus[n * cards:(n + 1) * cards]), num_cases)
            for n in range(num_cases)]


def _short(num_cases: int, ranks: int, there: int, what: str) -> list[Problem]:
    """The problem that there is less of `what` than one for each rank."""
    if (needed := num_cases * ranks) <= there:
        return []
    fewer = f", or hardware.workers={there // num_cases}" if there >= num_cases else ""
    return [Problem("--jobs", num_cases, f"{num_cases} cases with {ranks} rank{'s' if ranks > 1 else ''} each need "
                    f"{needed} {what} of their own, and this machine has {there}",
                    f"--jobs {max(1, there // ranks)}{fewer}")]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names that `CUDA_VISIBLE_DEVICES` takes."""
    import torch

    if not torch.cuda.is_available():
        return []
    named, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]
