"""A run on a machine that we do not have: its estimate, compared with measured and published times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gnnexp.planning.estimate import EpochEstimate, estimate_epoch
from gnnexp.planning.machine import Machine
from gnnexp.planning.work import full_factor, full_size, matmul_of, work_of
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.labels import setting_of
from gnnexp.reports.published_cells import Cell, cells, papers
from gnnexp.reports.published_graphs import published_graph

# A factor for all counts, or "full": a factor for each run that brings it to the size of its shape (`dataset.scale=1`).
Scale = float | Literal["full"]
# A graph is compared with the published one if its size differs by at most this share.
_SAME_SIZE = 0.05


@dataclass(frozen=True)
class RunEstimate:
    """A run with its estimate on a machine.

    Attributes:
        run: the run whose counts are used.
        machine: the described machine.
        estimate: the estimate of its epoch.
        factor: the factor that its counts were multiplied by.
    """

    run: RecordedRun
    machine: Machine
    estimate: EpochEstimate
    factor: float = 1.0

    @property
    def group(self) -> tuple[str, ...]:
        """What systems must share to be ranked together."""
        run, setting = self.run, setting_of(self.run)
        graph = run.value("dataset") if setting.shape != "null" else setting.dataset
        return (
            graph,
            setting.shape,
            f"{self.size:.3g}",
            setting.model,
            setting.layers,
            run.value("task"),
            self.machine.name,
        )

    @property
    def size(self) -> float:
        """The size of the estimated graph, divided by the size of its shape."""
        return float(self.run.config["dataset"].get("scale") or 1) * self.factor

    @property
    def measured_s(self) -> float:
        """Seconds of the run's own epoch; NaN unless it was made with this profile and its counts are not scaled."""
        return self.run.median("time/epoch_s") if made_with(self.run, self.machine) and self.factor == 1 else math.nan

    @property
    def ours(self) -> float:
        """Estimated seconds of the epoch; infinite if the run does not fit."""
        return self.estimate.epoch_s if self.estimate.fits else math.inf

    @property
    def published(self) -> Cell | None:
        """The paper's epoch on this machine, of the same system, graph at its size, model, layers, width and ranks."""
        if abs(self.size - 1) > _SAME_SIZE:
            return None
        found = [cell for paper in papers() for cell in cells(paper) if self._is(cell)]
        return found[0] if len({cell.value for cell in found}) == 1 else None

    @property
    def published_s(self) -> float:
        """Seconds of the paper's epoch; NaN if the paper has no such number or ran out of memory."""
        return math.nan if self.published is None else self.published.number

    @property
    def published_oom(self) -> bool:
        """Whether the paper ran out of memory."""
        return self.published is not None and self.published.value == "OOM"

    def _is(self, cell: Cell) -> bool:
        run = self.run
        named = (cell.quantity, cell.system, cell.dataset, cell.model, cell.hardware)
        said = {
            "workers": str(setting_of(run).ranks),
            "layers": run.value("model.layers"),
            "hidden": run.value("model.hidden"),
        }
        return (
            bool(cell.dataset)
            and named == ("epoch_s", run.value("system"), published_graph(run), run.value("model"), self.machine.name)
            and all(cell.setting.get(name, value) == value for name, value in said.items())
        )


def made_with(run: RecordedRun, machine: Machine) -> bool:
    """Whether `run` was made with the profile of `machine`."""
    return bool(run.provenance.get("choices", {}).get("hardware") == machine.name)


def tells_enough(run: RecordedRun) -> bool:
    """Whether a run has finished, and its record has the size of its data and the work of its layers.

    Runs of earlier versions and DGL's own loops do not record these.
    """
    return run.status == "finished" and "graph" in run.provenance and run.median("work/vertices_layer1") >= 0


def has_rates(run: RecordedRun, machine: Machine) -> bool:
    """Whether the machine's profile says how fast dense products of the run's precision are (`train.matmul`)."""
    return machine.product_rate(matmul_of(run)) is not None


def plan(runs: Sequence[RecordedRun], machines: Sequence[Machine], scale: Scale = 1.0) -> list[RunEstimate]:
    """Every run with enough counts, on each machine that has as many ranks or whose profile the run was made with."""
    estimates = []
    for run in filter(tells_enough, runs):
        factor = full_factor(run) if scale == "full" else scale
        work = full_size(run) if scale == "full" else work_of(run).scaled(scale)
        estimates += [
            RunEstimate(run, machine, estimate_epoch(work, machine), factor)
            for machine in machines
            if has_rates(run, machine) and (machine.is_filled_by(work.ranks) or made_with(run, machine))
        ]
    return estimates
