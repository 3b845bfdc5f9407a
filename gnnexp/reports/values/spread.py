"""A mean over seeds and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# 97.5 % quantiles of Student's t by degrees of freedom, from 1; further ones are within 2 % of the last.
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
              2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (Student's t); NaN for what there is too little of."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return (known[0] if known else math.nan), math.nan
    quantile = _QUANTILES[min(len(known) - 1, len(_QUANTILES)) - 1]
    return statistics.fmean(known), quantile * statistics.stdev(known) / math.sqrt(len(known))


def number_cell(value: float, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:{form}}"


def interval_cell(values: Sequence[float], form: str = ".4g") -> str:
    """`1.23 ± 0.04`, without the interval for one value; `–` for none. A form of fixed decimals holds for both."""
    mean, half = mean_and_interval(values)
    if math.isnan(half):
        return number_cell(mean, form)
    return f"{mean:{form}} ± {half:{form if form.endswith('f') else '.2g'}}"
