"""Which metrics of a task are errors, and which are shares."""

from __future__ import annotations

# Errors of real numbers, in the unit of the labels or its square.
ERRORS = ("mse", "mae")


def lower_is_better(metric: str) -> bool:
    """Whether a lower value of a metric (with or without its split) is better. For all others, a higher one is."""
    return metric.partition("/")[0] in ERRORS


def is_share(metric: str) -> bool:
    """Whether a metric (`acc/test`) is a share, which is shown in percent."""
    return metric.partition("/")[0] not in (*ERRORS, "r2")
