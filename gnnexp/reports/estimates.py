"""Systems ranked by the estimated time of their epoch on machines that we do not have (`gnnexp plan`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.planner.estimate import Estimate, estimate
from gnnexp.planner.machine import Machine
from gnnexp.planner.work import work_of
from gnnexp.reports.setting import setting_of
from gnnexp.reports.table import Table
from gnnexp.runs import Run

_COLUMNS = ("system", "dataset", "model", "ranks", "hardware", "S s", "L s", "FB s", "sync s", "epoch s", "device GB",
            "place", "measured s", "measured / estimated")
_CAPTION = (
    "Estimated, not measured: a linear model of what the runs counted (docs/estimates.md). S sampling, L loading, FB "
    "forward and backward, sync the gradients' sum, of the busiest rank, one after the other; nothing is fitted. "
    "Place: among the systems on the same graph, model and hardware; OOM: more device memory than there is. Measured: "
    "where the run was made with this profile."
)


@dataclass(frozen=True)
class Planned:
    """A run on a machine.

    Attributes:
        run: whose counts are taken.
        machine: on which.
        estimate: of its epoch.
    """

    run: Run
    machine: Machine
    estimate: Estimate

    @property
    def group(self) -> tuple[str, ...]:
        """What systems are ranked within."""
        setting = setting_of(self.run)
        return (setting.dataset, setting.model, setting.layers, self.run.value("task"), self.machine.name)

    @property
    def measured_s(self) -> float:
        """Of the run itself, where it was made with this profile; NaN elsewhere."""
        same = self.run.provenance.get("choices", {}).get("hardware") == self.machine.name
        return self.run.median("time/epoch_s") if same else math.nan


def tells_enough(run: Run) -> bool:
    """Whether a run has finished, and says how large its data is and what its layers computed.

    Those of earlier versions do not, nor do DGL's own loops.
    """
    return run.status == "finished" and "graph" in run.provenance and run.median("work/vertices_layer1") >= 0


def plan(runs: Sequence[Run], machines: Sequence[Machine], factor: float = 1.0) -> list[Planned]:
    """Every run that tells enough, on every machine with as many ranks, of a graph `factor` times as large."""
    return [Planned(run, machine, estimate(work_of(run).scaled(factor), machine))
            for run in runs if tells_enough(run) for machine in machines
            if setting_of(run).ranks == machine.nodes * machine.workers]


def make_table(runs: Sequence[Run], machines: Sequence[Machine], factor: float = 1.0) -> Table:
    """A row per run and machine, the fastest of a group first."""
    found = plan(runs, machines, factor)
    groups: dict[tuple[str, ...], list[Planned]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(one)
    rows = []
    for members in groups.values():
        members.sort(key=lambda one: (not one.estimate.fits, one.estimate.epoch_s))
        rows += [_cells(one, place) for place, one in enumerate(members, 1)]
    return Table(_COLUMNS, tuple(rows), _caption(runs, machines, found, factor))


def _cells(one: Planned, place: int) -> tuple[str, ...]:
    setting, told = setting_of(one.run), one.estimate
    seconds = (told.sample_s, told.load_s, told.forward_backward_s, told.sync_s, told.epoch_s)
    measured = one.measured_s
    return (one.run.value("system"), setting.dataset, setting.model, str(setting.ranks), one.machine.name,
            *(f"{value:.4g}" for value in seconds), f"{told.device_bytes / 1e9:.3g}",
            str(place) if told.fits else "OOM",
            *("–" if math.isnan(value) else f"{value:.4g}" for value in (measured, measured / told.epoch_s)))


def _caption(runs: Sequence[Run], machines: Sequence[Machine], found: Sequence[Planned], factor: float) -> str:
    notes = [_CAPTION]
    if factor != 1:
        notes.append(f"Counts times {factor:g}: of a graph, and of batches, so many times as large.")
    ratios = [one.measured_s / one.estimate.epoch_s for one in found if not math.isnan(one.measured_s)]
    if ratios:
        errors = [abs(math.log(ratio)) for ratio in ratios]
        notes.append(f"Measured and estimated differ by a factor of {math.exp(statistics.median(errors)):.2f} "
                     f"(median of {len(ratios)}).")
    notes += [f"{machine.name}: {machine.source}." for machine in machines]
    planned = {id(one.run) for one in found}
    others = [run for run in runs if id(run) not in planned]
    untold = sum(not tells_enough(run) for run in others)
    left_out = ((untold, "that failed or do not say what their layers computed"),
                (len(others) - untold, "with another number of ranks than the profiles have"))
    idle = {machine.name: machine.nodes * machine.workers for machine in machines} | {
        one.machine.name: 0 for one in found}
    notes += [f"No run has the {ranks} ranks of {name}." for name, ranks in idle.items() if ranks]
    return " ".join([*notes, *(f"Left out: {count} runs {why}." for count, why in left_out if count)])
