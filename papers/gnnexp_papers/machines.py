"""Seconds in claims: estimates for the paper's machine, and reasons why measured seconds decide nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnexp.planning.estimate import estimate_epoch
from gnnexp.planning.machine import machine_named
from gnnexp.planning.work import full_factor, full_steps
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import evaluate, names_in
from gnnexp.reports.labels import setting_of
from gnnexp.reports.planned import has_rates, tells_enough
from gnnexp.reports.published_graphs import fraction_of_targets, work_as_published
from gnnexp_papers.pairs import Found

_ESTIMATED = {
    "time/epoch_s": "epoch_s",
    "time/sample_s": "sample_s",
    "time/load_s": "load_s",
    "time/fb_s": "forward_backward_s",
    "time/sync_s": "sync_s",
}
# Seconds of the copies between a host and its device, with the metric of the copied bytes.
_CROSSING = {"time/h2d_s": "tier/h2d_bytes", "time/d2h_s": "tier/d2h_bytes"}
_COLLECTIVES = "time/comm_s"


def of_seconds(value: str) -> bool:
    """Whether an expression uses measured seconds."""
    return any(name.startswith("time/") or name.endswith(("_s", "/seconds")) for name in names_in(value))


def can_estimate(value: str) -> bool:
    """Whether the planner can estimate every time in an expression."""
    known = {*_ESTIMATED, *_CROSSING, _COLLECTIVES}
    return all(name in known for name in names_in(value) if of_seconds(f"[{name}]"))


def fits(run: RecordedRun, hardware: str) -> bool:
    """Whether `run` can be estimated on the profile: it has counts, and the machine can run that many ranks."""
    machine = machine_named(hardware)
    return tells_enough(run) and has_rates(run, machine) and machine.can_run(setting_of(run).ranks)


def seconds_there(run: RecordedRun, hardware: str, paper: str, edge_rows: Sequence[str]) -> dict[str, float]:
    """Estimated seconds on `hardware` at the published size, by metric; NaN if the run would not fit."""
    share = fraction_of_targets(paper, run)
    work, machine = work_as_published(paper, run, edge_rows), machine_named(hardware)
    predicted, times = estimate_epoch(work, machine), full_factor(run) * full_steps(run, share)
    crossing = {
        name: evaluate(f"[{counted}]", run) * times / work.ranks / machine.host for name, counted in _CROSSING.items()
    }
    sent = sum(work.sent_bytes.values()) / machine.link + sum(work.rounds.values()) * machine.latency
    found = {name: getattr(predicted, field) for name, field in _ESTIMATED.items()} | crossing | {_COLLECTIVES: sent}
    return found if predicted.fits else dict.fromkeys(found, math.nan)


def flaw_of_seconds(found: Found) -> str:
    """Why the measured seconds of a pair decide nothing; empty if they may decide."""
    crowded = sorted(
        {(setting_of(run).ranks, cores) for run in found.runs if 0 < (cores := cores_of(run)) < setting_of(run).ranks}
    )
    if crowded:
        return f"{crowded[-1][0]} ranks on {crowded[-1][1]} cores"
    shared = sorted(
        {
            (setting_of(run).ranks, cards)
            for run in found.runs
            if run.value("hardware.device") != "cpu"
            and 0 < (cards := sum(len(node["gpus"]) for node in run.nodes)) < setting_of(run).ranks
        }
    )
    if shared:
        return f"{shared[-1][0]} ranks on {shared[-1][1]} GPUs"
    kinds = sorted({run.machine for run in found.runs})
    return "" if len(kinds) < 2 else f"different kinds of machine: {'; '.join(kinds)}"


def cores_of(run: RecordedRun) -> int:
    """Physical cores of the nodes that `run` ran on; 0 if its record does not contain them."""
    if run.nodes:
        return sum(int(node["cores"]) for node in run.nodes)
    return int(run.provenance.get("hardware", {}).get("cores") or 0)
