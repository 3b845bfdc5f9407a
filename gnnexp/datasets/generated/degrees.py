"""Degrees of a synthetic graph: log-normal, cut at 1 and at the largest degree, and a share of zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from gnnexp.errors import ConfigError, Problem

_LARGEST = 2**31 - 1
# Bisection halves an interval of about 100 until no float lies between its ends. This takes fewer steps.
_STEPS = 200


@dataclass(frozen=True)
class DegreeModel:
    """d(v) = clip(exp(mu + sigma z), 1, largest) with z standard normal; a share of vertices has degree 0 instead.

    Attributes:
        mean: mean degree over all vertices, also those of degree 0.
        sigma: standard deviation of the logarithm of degrees, before they are cut.
        largest: largest degree.
        zeros: share of vertices of degree 0, in [0, 1).
    """

    mean: float
    sigma: float
    largest: int
    zeros: float = 0.0


def problems(model: DegreeModel, key: str = "degrees") -> list[Problem]:
    """What makes `model` a distribution that no graph has. `key` stands in front of its fields in the messages."""
    fields = [
        Problem(f"{key}.{name}", value, allowed, f"set {key}.{name}={fix}")
        for name, value, good, allowed, fix in (
            ("mean", model.mean, 0 < model.mean < math.inf, "must be above 0 and finite", "10"),
            ("sigma", model.sigma, 0 < model.sigma <= 10, "must be above 0 and at most 10", "1"),
            ("largest", model.largest, 2 <= model.largest <= _LARGEST, f"must be 2 to {_LARGEST}", "1000"),
            ("zeros", model.zeros, 0 <= model.zeros < 1, "must be in [0, 1)", "0"),
        )
        if not good
    ]
    return fields or _impossible_mean(model, key)


def _impossible_mean(model: DegreeModel, key: str) -> list[Problem]:
    low, high = 1 - model.zeros, (1 - model.zeros) * model.largest
    if low < model.mean < high:
        return []
    allowed = f"must be above {low:g} and below {high:g}, for degrees 1 to {model.largest} and {model.zeros:g} of zeros"
    fix = f"raise {key}.zeros" if model.mean <= low else f"raise {key}.largest"
    return [Problem(f"{key}.mean", model.mean, allowed, f"{fix}, or set another mean")]


def location(model: DegreeModel) -> float:
    """The mu with which the mean over all vertices is `mean`, by bisection of the exact mean.

    Raises:
        ConfigError: no mu gives this mean.
    """
    ConfigError.raise_all(problems(model))
    wanted = model.mean / (1 - model.zeros)
    # Forty standard deviations away from both cuts, all degrees are 1, or all are the largest, to the last bit.
    low, high = -40 * model.sigma, math.log(model.largest) + 40 * model.sigma
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _mean_above_zero(middle, model) < wanted:
            low = middle
        else:
            high = middle
    return high


def _mean_above_zero(mu: float, model: DegreeModel) -> float:
    """Mean of clip(exp(mu + sigma z), 1, largest): its three parts are the cut ends and the log-normal middle."""
    first, last = -mu / model.sigma, (math.log(model.largest) - mu) / model.sigma
    # P(a < z < b) as a difference of lower tails below 0 and of upper tails above 0, or digits are lost.
    start, end = first - model.sigma, last - model.sigma
    between = ndtr(-start) - ndtr(-end) if start > 0 else ndtr(end) - ndtr(start)
    # Where nothing lies between the cuts, exp may overflow: the middle is 0.
    middle = math.exp(mu + model.sigma**2 / 2 + math.log(between)) if between > 0 else 0.0
    return float(ndtr(first) + middle + model.largest * ndtr(-last))


def quantiles(model: DegreeModel, count: int) -> np.ndarray:
    """Expected degrees `[count]` float64, ascending: those at (i + 1/2) / count of all vertices, zeros first.

    Raises:
        ConfigError: no graph has these degrees.
    """
    assert count > 0, "a distribution has at least one quantile"
    mu = location(model)
    share = ((np.arange(count) + 0.5) / count - model.zeros) / (1 - model.zeros)
    degrees = np.zeros(count)
    above = share > 0
    logarithm = mu + model.sigma * ndtri(share[above])
    degrees[above] = np.exp(np.clip(logarithm, 0.0, math.log(model.largest)))
    return degrees
