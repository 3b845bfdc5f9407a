"""Systems ranked by the estimated time of their epoch on machines that we do not have (`gnnexp plan`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from gnnexp.errors import ConfigError, Problem
from gnnexp.planning.machine import Machine
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.labels import setting_of
from gnnexp.reports.planned import RunEstimate, Scale, has_rates, plan, tells_enough
from gnnexp.reports.published_cells import pairs_in_order
from gnnexp.reports.tables.cells import ABSENT, NumberCell, TableCell, VerdictCell
from gnnexp.reports.tables.table import ReportTable

_COLUMNS = (
    "system",
    "dataset",
    "model",
    "ranks",
    "hardware",
    "S s",
    "L s",
    "FB s",
    "sync s",
    "hidden s",
    "epoch s",
    "device GB",
    "place",
    "measured s",
    "measured / estimated",
    "published s",
    "published / estimated",
)
_CAPTION = (
    "Estimated, not measured: a linear model of what the runs counted (docs/estimates.md). S is sampling, L loading, "
    "FB forward and backward, and sync the gradients' sum. They are times of the busiest rank, one after the other. "
    "The epoch is their sum, minus what is hidden behind other work; nothing is fitted. "
    "Place: among the systems on the same graph, model and hardware. OOM: more device memory than there is. Measured: "
    "if the run was made with this profile. Published: by a paper on such a machine."
)

_FIX = "choose profiles with as many ranks as runs have (--hardware all: every one), or run with hardware.workers=N"


def make_ranking(
    runs: Sequence[RecordedRun], machines: Sequence[Machine], scale: Scale = 1.0, untold: Sequence[str] = ()
) -> ReportTable:
    """The ranking table: a row per run and machine, the fastest of a group first.

    Args:
        runs: runs whose counts are used.
        machines: the described machines.
        scale: factor for the size of the graphs, see `plan`.
        untold: names of profiles whose description is incomplete, so that they are not among the machines.

    Raises:
        ConfigError: no run can be estimated on any of the machines.
    """
    estimates = plan(runs, machines, scale)
    if not estimates:
        names, reasons = ",".join(machine.name for machine in machines), " ".join(_left_out(runs, machines, estimates))
        raise ConfigError(Problem("--hardware", names, f"nothing to estimate: {reasons}", _FIX))
    groups: dict[tuple[str, ...], list[RunEstimate]] = {}
    for planned in estimates:
        groups.setdefault(planned.group, []).append(planned)
    kinds = {planned.run.machine for planned in estimates if not math.isnan(planned.measured_s)}
    rows = []
    for members in groups.values():
        members.sort(key=lambda planned: (not planned.estimate.fits, planned.estimate.epoch_s))
        rows += [
            (*_cells(planned, place), *([_measured_on(planned)] if len(kinds) > 1 else []))
            for place, planned in enumerate(members, 1)
        ]
    notes = [
        _CAPTION,
        *_scaled(scale),
        *_errors(estimates),
        *_order(groups.values()),
        *_chunks(estimates),
        *(f"{machine.name}: {machine.source}." for machine in machines),
        *_left_out(runs, machines, estimates),
        *([f"Profiles without enough numbers: {', '.join(untold)}."] if untold else []),
    ]
    return ReportTable((*_COLUMNS, *(["measured on"] if len(kinds) > 1 else [])), tuple(rows), " ".join(notes))


def _measured_on(one: RunEstimate) -> str:
    return "–" if math.isnan(one.measured_s) else one.run.machine


def _cells(planned: RunEstimate, place: int) -> tuple[TableCell, ...]:
    setting, estimate = setting_of(planned.run), planned.estimate
    seconds = (
        estimate.sample_s,
        estimate.load_s,
        estimate.forward_backward_s,
        estimate.sync_s,
        estimate.hidden_s,
        estimate.epoch_s,
    )
    compared = [
        value for known in (planned.measured_s, planned.published_s) for value in (known, known / estimate.epoch_s)
    ]
    return (
        planned.run.value("system"),
        setting.dataset,
        setting.model,
        str(setting.ranks),
        planned.machine.name,
        *map(NumberCell, seconds),
        NumberCell(estimate.device_bytes / 1e9, ".3g"),
        str(place) if estimate.fits else "OOM",
        *map(NumberCell, compared[:2]),
        VerdictCell(compared[2], absent="OOM" if planned.published_oom else ABSENT),
        NumberCell(compared[3]),
    )


def _scaled(scale: Scale) -> list[str]:
    if scale == "full":
        return ["Counts of graphs and batches are multiplied so that each graph is as large as its shape."]
    return [] if scale == 1 else [f"Counts times {scale:g}: of a graph and of batches that are this many times larger."]


def _errors(estimates: Sequence[RunEstimate]) -> list[str]:
    """The factor between estimates and measured or published times: over all systems, then for each system."""
    notes = []
    for word, known in (
        ("Measured", [planned.measured_s for planned in estimates]),
        ("Published", [planned.published_s for planned in estimates]),
    ):
        factors: dict[str, list[float]] = {}
        for planned, value in zip(estimates, known, strict=True):
            if not math.isnan(value) and planned.estimate.fits:
                factors.setdefault(planned.run.value("system"), []).append(_factor(value, planned.estimate.epoch_s))
        together = [factor for of_system in factors.values() for factor in of_system]
        if together:
            systems = "; ".join(f"{system} {_median_and_worst(of_system)}" for system, of_system in factors.items())
            notes.append(
                f"{word} and estimated differ by a factor of {statistics.median(together):.2f} "
                f"(median of {len(together)}), {max(together):.2f} at worst: {systems}."
            )
    return notes


def _factor(one: float, other: float) -> float:
    return math.exp(abs(math.log(one / other)))


def _median_and_worst(factors: Sequence[float]) -> str:
    median, worst = statistics.median(factors), max(factors)
    return f"{median:.2f}" if len(factors) == 1 else f"{median:.2f} ({worst:.2f} at worst)"


def _order(groups: Iterable[Sequence[RunEstimate]]) -> list[str]:
    """How often estimates order two systems as the paper does, and whether systems run out of memory as published."""
    ours = [planned for members in groups for planned in members]
    ordered, total = pairs_in_order((planned.group, planned.ours, planned.published_s) for planned in ours)
    known = [planned for planned in ours if planned.published is not None]
    out = [planned for planned in known if planned.published_oom]
    notes = [f"{ordered} of {total} pairs of systems are in the published order."] if total else []
    if out or any(not planned.estimate.fits for planned in known):
        right = sum(not planned.estimate.fits for planned in out)
        wrong = sum(not planned.estimate.fits and not planned.published_oom for planned in known)
        notes.append(f"Out of memory: {right} of the {len(out)} that were published as such, and {wrong} others.")
    return notes


def _chunks(found: Sequence[RunEstimate]) -> list[str]:
    more = sorted(
        {f"{one.run.value('system')} {one.estimate.more_chunks}" for one in found if one.estimate.more_chunks > 1}
    )
    return [f"To fit, some runs need more chunks than were counted, by this factor: {', '.join(more)}."] if more else []


def _left_out(runs: Sequence[RecordedRun], machines: Sequence[Machine], estimates: Sequence[RunEstimate]) -> list[str]:
    planned = {id(planned_run.run) for planned_run in estimates}
    others = [run for run in runs if id(run) not in planned]
    incomplete = sum(not tells_enough(run) for run in others)
    unknown = sum(tells_enough(run) and not any(has_rates(run, machine) for machine in machines) for run in others)
    left_out = (
        (incomplete, "that failed or did not record what their layers computed"),
        (unknown, "whose train.matmul has no rate in the profiles (flops_tf32; bf16 is in none)"),
        (len(others) - incomplete - unknown, "with another number of ranks than the profiles have"),
    )
    used = {planned_run.machine.name for planned_run in estimates}
    idle = [
        f"{machine.nodes * machine.workers} ranks of {machine.name}" for machine in machines if machine.name not in used
    ]
    return [
        *(f"No run has the {machine}." for machine in idle),
        *(f"Left out: {count} runs {why}." for count, why in left_out if count),
    ]
