"""Options of late rows: what they must be, and what is recorded of their exchanges."""

from __future__ import annotations

from gnnexp.comm.arrival import Arrival
from gnnexp.components.options import rule_problems
from gnnexp.errors import Problem
from gnnexp.paradigms.job import Job


def lateness_problems(
    delay: int, bins: int, smoothing: dict[str, float], *, pipeline: bool, whole_parts: bool
) -> list[Problem]:
    """Problems of the options.

    Args:
        delay: `paradigm.delay`.
        bins: `paradigm.bins`.
        smoothing: gamma by name of the option.
        pipeline: `paradigm.pipeline`.
        whole_parts: whether ranks broadcast whole parts.
    """
    late, whole = "set paradigm.delay=<epochs>", "set paradigm.exchange=halo"
    no_delay = "without paradigm.delay all rows are fresh"
    return rule_problems(
        (bins >= 1, "bins", bins, "must be 1 (all rows in every epoch) or more", "set paradigm.bins=1"),
        (bins <= 1 or delay > 0, "bins", bins, no_delay, f"{late}, or paradigm.bins=1"),
        (
            bins <= 1 or not whole_parts,
            "bins",
            bins,
            "exchange=broadcast sends whole parts",
            f"{whole}, or paradigm.bins=1",
        ),
        *(
            rule
            for name, gamma in smoothing.items()
            for rule in (
                (0 <= gamma < 1, name, gamma, "must be from 0 (no averages) to below 1", f"set paradigm.{name}=0.95"),
                (not gamma or delay > 0, name, gamma, no_delay, f"{late}, or paradigm.{name}=0"),
            )
        ),
        (not pipeline or delay > 0, "pipeline", pipeline, no_delay, f"{late}, or paradigm.pipeline=false"),
        (
            not pipeline or not whole_parts,
            "pipeline",
            pipeline,
            "exchange=broadcast sends whole parts one after another",
            f"{whole}, or paradigm.pipeline=false",
        ),
    )


def late_facts(job: Job, arrival: Arrival, *, in_background: bool) -> dict[str, str]:
    """Where late rows are exchanged, for the record; nothing without late rows."""
    if arrival.kind != "late" or not arrival.epochs:
        return {}
    wanted = getattr(job.experiment.paradigm, "pipeline", False)
    refused = ": NCCL lets one thread launch at a time" if wanted and not in_background else ""
    return {"late_exchanges": "in the background" if in_background else f"in the loop{refused}"}
