"""The figures of a run that a store gets: a choice of what was recorded, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from gnnexp.measure.merit import lower_is_better
from gnnexp.measure.phases import PHASES
from gnnexp.record.records import figure_of_merit, warm_median
from gnnexp.trackers.delivery import RunRecord

# `main`: at most 40 figures, enough to compare runs. `full`: all that was recorded, too.
Detail = Literal["main", "full"]
DETAILS = get_args(Detail)

EPOCH, CUMULATIVE, VALIDATION = "time/epoch_s", "time/cumulative_s", "main/val"
# The breakdown of an epoch by its names in the store. See `phase_figures`.
BREAKDOWN = {f"phase/{phase}_s": f"time/{phase}_s_mean" for phase in (*PHASES, "unaccounted")}
# `sizes` and `evaluation` are left out: the first is small, and the second is no part of an epoch.
_PAYLOADS = ("frontier", "features", "topology", "activations", "endpoints", "gradients", "parameters", "embeddings")
_CHOSEN = (
    "loss/train",
    "time/comm_exposed_s",
    *(f"comm/bytes_{tag}" for tag in _PAYLOADS),
    "tier/h2d_bytes",
    "tier/d2h_bytes",
    "memory/host_peak_bytes",
    "memory/device_peak_bytes",
    "eval/seconds",
)


def epoch_figures(record: RunRecord, detail: Detail) -> list[dict[str, float]]:
    """The figures of each epoch by name. Those that an epoch did not record are absent.

    Four follow from the record:

    - `main/val` is the task's metric on the validation vertices or links.
    - `throughput/targets_per_s` and `throughput/edges_per_s` divide the targets, and the edges that layers computed,
      by the seconds of the epoch.
    - `time/cumulative_s` is the training time up to the end of the epoch: the sum of `time/epoch_s`, without
      evaluation and checkpoints. It is the last figure of each epoch.
    """
    epochs, so_far = [], 0.0
    for metrics in (line["metrics"] for line in record.epochs):
        seconds = metrics.get(EPOCH, math.nan)
        so_far += seconds
        derived = {
            VALIDATION: _merit(record, metrics, "val")[1],
            **_throughput(record, metrics, seconds),
            EPOCH: seconds,
            CUMULATIVE: so_far,
        }
        kept = {name: metrics[name] for name in _names(record, metrics, detail)}
        epochs.append({name: value for name, value in (kept | derived).items() if is_number(value)})
    return epochs


def _names(record: RunRecord, metrics: Mapping[str, float], detail: Detail) -> list[str]:
    """The recorded figures of an epoch that are sent as they are. `time/epoch_s` and what follows come after them."""
    if detail == "full":
        return [name for name in metrics if name != EPOCH]
    of_task = [_merit(record, metrics, split)[0] for split in ("val", "test")]
    return [name for name in (*_CHOSEN, *of_task) if name in metrics]


def _throughput(record: RunRecord, metrics: Mapping[str, float], seconds: float) -> dict[str, float]:
    counts = {"targets": _targets(record), "edges": metrics.get("work/edges_computed", math.nan)}
    return {
        f"throughput/{name}_per_s": count / seconds
        for name, count in counts.items()
        if seconds > 0 and not math.isnan(count)
    }


def _targets(record: RunRecord) -> float:
    """The targets of an epoch; NaN if the record does not contain their number, or if epochs are cut short."""
    provenance, config = record.job["provenance"], record.job["config"]
    links = provenance.get("choices", {}).get("task") == "link_prediction"
    count = provenance.get("graph", {}).get("num_links" if links else "num_train", 0)
    return math.nan if config["train"].get("steps_per_epoch") is not None else count or math.nan


def main_figures(record: RunRecord, target: float | None = None) -> dict[str, float]:
    """The figures by which runs are compared, with the same names for every task; only those that were recorded.

    - `test`: the test metric at the best validation epoch, 0 to 1.
    - `epoch_s`, `sent_MB` per epoch by all ranks, and the memory peaks `host_MB` and `device_MB` (10^6 bytes): medians
      over the epochs after the first, which warms up.
    - `time_to_target_s`: the training time up to the first epoch in which the validation metric reached `target`.

    Names are short, because a column of the dashboard shows some 14 characters.
    """
    assert record.result is not None
    epochs = [line["metrics"] for line in record.epochs]
    figures = {
        "test": reported_merit(record)[1],
        "epoch_s": warm_median(epochs, EPOCH),
        "sent_MB": _sent_bytes(record, epochs) / 1e6,
        "host_MB": warm_median(epochs, "memory/host_peak_bytes") / 1e6,
        "device_MB": warm_median(epochs, "memory/device_peak_bytes") / 1e6,
        "time_to_target_s": math.nan if target is None else _seconds_to(record, target),
    }
    return {f"main/{name}": value for name, value in figures.items() if not math.isnan(value)}


def phase_figures(record: RunRecord) -> dict[str, float]:
    """The seconds of each phase that was recorded, as in `figures/breakdown.csv`: `phase/sample_s` and others.

    Each is a mean over the ranks, because means add up to the epoch's wall time and maxima do not. It is also a median
    over the epochs after the first, which warms up. So the sum may differ a little from `main/epoch_s`.
    """
    epochs = [line["metrics"] for line in record.epochs]
    found = {name: warm_median(epochs, recorded) for name, recorded in BREAKDOWN.items()}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def end_figures(record: RunRecord, target: float | None) -> dict[str, float]:
    """The main figures and the phases of a run, rounded to 6 significant digits.

    MLflow's list shows all digits of a number, and cuts off what has no room.
    """
    figures = main_figures(record, target) | phase_figures(record)
    return {name: float(f"{value:.6g}") for name, value in figures.items()}


def _seconds_to(record: RunRecord, target: float) -> float:
    """Training time until the validation metric first reached `target`, in seconds; NaN if it never did."""
    named = (_merit(record, line["metrics"], "val")[0] for line in record.epochs)
    sign = -1 if lower_is_better(next(filter(None, named), "")) else 1
    return next(
        (
            figures.get(CUMULATIVE, math.nan)
            for figures in epoch_figures(record, "main")
            if sign * figures.get(VALIDATION, -sign * math.inf) >= sign * target
        ),
        math.nan,
    )


def _sent_bytes(record: RunRecord, epochs: Sequence[Mapping[str, float]]) -> float:
    """Bytes that all ranks sent in an epoch: 0 if none is recorded, as a tag without traffic is not.

    NaN without an epoch, and for an external system that reported none.
    """
    medians = [
        warm_median(epochs, name)
        for name in sorted({name for epoch in epochs for name in epoch})
        if name.startswith("comm/bytes_")
    ]
    facts = (record.result or {}).get("paradigm") or {}
    if not epochs or ("external" in facts and not medians):
        return math.nan
    return math.fsum(value for value in medians if not math.isnan(value))


def reported_merit(record: RunRecord) -> tuple[str, float]:
    """Name and value of the task's metric on the test vertices or links, at the best validation epoch."""
    assert record.result is not None
    return _merit(record, record.result["summary"], "test")


def _merit(record: RunRecord, metrics: Mapping[str, float], split: str) -> tuple[str, float]:
    return figure_of_merit(metrics, split, str(record.job["config"].get("task", {}).get("metric")))


def is_number(value: object) -> bool:
    """Whether a store can keep a value as a figure."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
