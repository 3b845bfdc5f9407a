"""A number of a run by its name in the record, its form in columns and along axes, and its mean over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any

from gnnexp.components.signature import nearest, unknown
from gnnexp.errors import Problem
from gnnexp.measure.merit import is_share, lower_is_better
from gnnexp.measure.record import TIME_NAMES, TRAFFIC_NAMES
from gnnexp.record.records import warm
from gnnexp.record.runs import RecordedRun

_ROOMS = ("time", "comm", "work", "tier", "memory", "imbalance", "eval", "quality", "loss", "trace", "counts", "se")
_SPLITS = ("val", "test")
# Rooms whose names are known before there is a run, and the similarity to a known name that counts as a typing mistake.
_NAMES: Mapping[str, Set[str]] = {"time": TIME_NAMES, "comm": TRAFFIC_NAMES}
_SLIP = 0.85
# By the last word of a header: the factor, and a word that the metric must contain (`bytes`) or its ending (`_s`).
_UNITS: Mapping[str, tuple[float, str]] = {
    "ms": (1e3, "_s"),
    "s": (1.0, "_s"),
    "KB": (1e-3, "bytes"),
    "MB": (1e-6, "bytes"),
    "GB": (1e-9, "bytes"),
    "%": (100.0, ""),
    "K": (1e-3, ""),
    "M": (1e-6, ""),
}


def metric_problems(where: str, metric: object) -> list[Problem]:
    """What is wrong with the name of a metric, or of a sum of metrics (`work/a + work/b`)."""
    if not isinstance(metric, str) or not metric:
        return [Problem(where, metric, "must be a metric of the epoch record", "time/epoch_s (docs/record.md)")]
    problems = []
    for name in terms(metric):
        room, _, rest = name.partition("/")
        if not rest:
            problems.append(
                Problem(
                    where,
                    metric,
                    "must be room/name, or a sum of them separated by ` + `",
                    "time/epoch_s (docs/record.md)",
                )
            )
        elif room not in _ROOMS and rest not in _SPLITS:
            problems.append(unknown(where, metric, room, _ROOMS))
        elif name not in (names := _NAMES.get(room, frozenset((name,)))) and nearest(name, names, _SLIP):
            problems.append(unknown(where, metric, name, names))  # other names may be counted by a user's own component
    return problems


def unit_problems(where: str, header: str, metric: str) -> list[Problem]:
    """What is wrong if a column's header ends in a unit that its metric does not have."""
    unit = _unit_of(header)
    needed = _UNITS.get(unit, (1.0, ""))[1]
    fits = all(needed in name if needed == "bytes" else is_time(name) for name in terms(metric)) if needed else True
    if fits:
        return []
    kind = "bytes" if needed == "bytes" else "seconds"
    return [
        Problem(
            where,
            metric,
            f"a column in {unit} needs a metric of {kind}",
            f"give it a header without {unit}, or another metric",
        )
    ]


def terms(metric: str) -> list[str]:
    """The names in a sum of metrics; one name if there is no sum."""
    return [name.strip() for name in metric.split(" + ")]


def is_time(metric: str) -> bool:
    """Whether the metric is a time (`time/epoch_s`, `time/wait_s_mean`)."""
    return metric.startswith("time/") or metric.endswith(("_s", "/seconds"))


def value_of(run: RecordedRun, metric: str) -> float:
    """The value of a metric for a finished run, in the record's units; NaN if the run did not record it.

    `acc/test` and the like are values at the best validation epoch, and `quality/*` is about the partition. All others
    are medians over the epochs that count (`records.warm`); a sum is formed in each epoch.
    """
    names = terms(metric)
    if len(names) == 1 and (kept := _of_the_run(run, names[0])) is not None:
        return kept
    epochs = warm(run.epochs, names[0])
    values = [value for epoch in epochs if not math.isnan(value := epoch_value(epoch, metric))]
    return statistics.median(values) if values else math.nan


def epoch_value(epoch: Mapping[str, float], metric: str) -> float:
    """The value of a metric in one epoch; NaN if the epoch did not record it.

    A tag without traffic is not recorded. Its value is 0 in an epoch that recorded any traffic, unless an external
    system recorded it: such a system may report some tags only.
    """
    found = [epoch.get(name, 0.0 if _counted(epoch, name) else math.nan) for name in terms(metric)]
    return float(sum(found))


def values_of(runs: Sequence[RecordedRun], metric: str) -> list[float]:
    """The finite values of all runs that recorded the metric: an infinite one cannot be drawn, and tables name it."""
    return [value for run in runs if math.isfinite(value := value_of(run, metric))]


def unrecorded(runs: Sequence[RecordedRun], metrics: Iterable[str]) -> list[str]:
    """A sentence for each name in `metrics` that no finished run has, with the nearest name if there is one."""
    done = [run for run in runs if run.status == "finished"]
    names = list(dict.fromkeys(name for metric in metrics for name in terms(metric)))
    absent = [name for name in names if done and all(math.isnan(value_of(run, name)) for run in done)]
    known = {name for run in done for names in (*run.epochs, run.summary) for name in names}
    known |= {f"quality/{name}" for run in done for name in run.quality}
    return [
        f"{name} is NaN in every run"
        if name in known
        else f"no run has {name}" + (f"; {near}?" if (near := nearest(name, known)) else "")
        for name in absent
    ]


def header_factor(header: str) -> float:
    """The factor for a column's values: `features MB` shows bytes / 10^6, `epoch ms` seconds x 1000."""
    return _UNITS.get(_unit_of(header), (1.0, ""))[0]


def axis_of(metric: str) -> tuple[str, float]:
    """Label of an axis with its unit, and the factor for the record's values."""
    first = terms(metric)[0]
    name = " + ".join(_short(term) for term in terms(metric))
    if is_time(first):
        return f"{name}, seconds", 1.0
    if "bytes" in first:
        return f"{name}, MB", 1e-6
    if first.partition("/")[2] in _SPLITS and not first.startswith("loss/") and is_share(first):
        return f"{first}, %", 100.0
    return name, 1.0


def _short(term: str) -> str:
    """`time/epoch_s` is `epoch`, `work/edges_computed` is `edges computed`."""
    room, _, name = term.partition("/")
    if room == "loss" or name in _SPLITS:
        return term
    name = name.removesuffix("_s") if is_time(term) else name.removesuffix("_bytes").removeprefix("bytes_")
    return name.replace("_", " ") + (" sent" if room == "comm" and "bytes" in term else "")


def _unit_of(header: str) -> str:
    return header.rpartition(" ")[2]


def _of_the_run(run: RecordedRun, name: str) -> float | None:
    room, _, rest = name.partition("/")
    if room == "quality":
        return float(run.quality.get(rest, math.nan))
    if rest in _SPLITS and room != "loss":
        return float(run.summary.get(name, math.nan))
    return None


def _counted(epoch: Mapping[str, Any], name: str) -> bool:
    external = "time/wall_s" in epoch
    return name in TRAFFIC_NAMES and not external and any(other.startswith("comm/") for other in epoch)


def typical_epoch(runs: Sequence[RecordedRun]) -> str:
    """For captions: the epochs over which `value_of` takes its median, and that the first one is left out."""
    warm = sorted({run.num_warm for run in runs if len(run.epochs) > 1})
    alone = any(len(run.epochs) == 1 for run in runs)
    if not warm:
        return "the only epoch, which is not warmed up" if alone else "no epoch"
    count = f"{warm[0]} epochs" if warm[0] == warm[-1] else f"{warm[0]} to {warm[-1]} epochs"
    return f"median of the {'1 epoch' if warm == [1] else count} after the first, which warms up and is left out" + (
        "; runs of one epoch: that one" if alone else ""
    )


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (Student's t); NaN if there are too few values."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return (known[0] if known else math.nan), math.nan
    from scipy.special import stdtrit  # 0.15 s, which only a report of several seeds needs

    quantile = float(stdtrit(len(known) - 1, 0.975))
    return statistics.fmean(known), quantile * statistics.stdev(known) / math.sqrt(len(known))


def seconds_of(run: RecordedRun) -> float:
    """Seconds of training of a run, without preparation and evaluation."""
    return math.fsum(_epoch_s(run, number) for number in range(len(run.epochs)))


def seconds_to(target: float, run: RecordedRun) -> float:
    """Seconds of training until the task's validation metric reaches `target`; NaN if it never does.

    Evaluation takes no part in them. An error (`mse`) is reached from above.
    """
    name, _ = run.best("val")
    sign = -1 if lower_is_better(name) else 1
    ends = accumulate(_epoch_s(run, number) for number in range(len(run.epochs)))
    values = (sign * epoch.get(name, -sign * math.inf) for epoch in run.epochs)
    return next((end for end, value in zip(ends, values, strict=True) if value >= sign * target), math.nan)


def _epoch_s(run: RecordedRun, number: int) -> float:
    """Seconds of an epoch. An external system may report no time: then its wall time counts."""
    metrics = run.epochs[number]
    return float(metrics.get("time/epoch_s", metrics.get("time/wall_s", 0.0)))
