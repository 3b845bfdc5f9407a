"""Options of vertex parallelism that make no sense together."""

from __future__ import annotations

import math

from gnnexp.components.options import rule_problems
from gnnexp.errors import Problem


def age_problems(dependency: str, staleness: int, delay: int) -> list[Problem]:
    """Wrong ages and delays."""
    stale, is_late = dependency == "stale", delay > 0
    return rule_problems(
        (
            staleness >= 0,
            "staleness",
            staleness,
            "must be 0 (always fresh) or more epochs",
            "set paradigm.staleness=0",
        ),
        (
            staleness <= 0 or stale,
            "staleness",
            staleness,
            f"dependency={dependency} has no old rows",
            "set paradigm.dependency=stale, or paradigm.staleness=0",
        ),
        (delay >= 0, "delay", delay, "must be 0 (at once) or more epochs", "set paradigm.delay=0"),
        (
            not is_late or dependency == "communicate",
            "delay",
            delay,
            f"rows of dependency={dependency} are not late",
            "set paradigm.dependency=communicate, or paradigm.delay=0",
        ),
    )


def variation_problems(dependency: str, staleness: int, metric: str, bound: float) -> list[Problem]:
    """A wrong bound of the variation, or a second bound."""
    by_variation = metric == "variation"
    return rule_problems(
        (
            math.isfinite(bound) and bound >= 0,
            "variation_bound",
            bound,
            "must be 0 (always fresh) or a larger share of the norm of the rows",
            "set paradigm.variation_bound=0.05",
        ),
        (
            bound == 0 or by_variation,
            "variation_bound",
            bound,
            f"staleness_metric={metric} bounds no variation",
            "set paradigm.staleness_metric=variation, or paradigm.variation_bound=0",
        ),
        (
            not by_variation or dependency == "stale",
            "staleness_metric",
            metric,
            f"dependency={dependency} has no old rows",
            "set paradigm.dependency=stale, or paradigm.staleness_metric=epochs",
        ),
        (
            not by_variation or staleness == 0 or dependency != "stale",
            "staleness",
            staleness,
            "staleness_metric=variation bounds no age",
            "set paradigm.staleness=0, or paradigm.staleness_metric=epochs",
        ),
    )


def exchange_problems(dependency: str, exchange: str, rows: str, *, is_fresh: bool) -> list[Problem]:
    """Exchanges and rows that do not fit to the dependency."""
    return rule_problems(
        (
            exchange != "broadcast" or dependency not in ("cache", "hybrid"),
            "exchange",
            exchange,
            f"dependency={dependency} fetches single rows",
            "set paradigm.exchange=halo",
        ),
        (
            rows == "raw" or is_fresh,
            "rows",
            rows,
            "old or late rows would be projected with weights of another epoch",
            "set paradigm.rows=raw, or staleness, delay and variation_bound of paradigm to 0",
        ),
    )
