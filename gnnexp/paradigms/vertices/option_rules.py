"""Options of vertex parallelism that make no sense together."""

from __future__ import annotations

import math
from typing import Protocol

from gnnexp.comm.arrival import Arrival
from gnnexp.components.options import rule_problems
from gnnexp.errors import Problem


# ruff: noqa: D102  the names are those of the paradigm's options, which its docstring explains
class DependencyOptions(Protocol):
    """The options that depend on each other (`VertexParallel`)."""

    @property
    def arrival(self) -> Arrival: ...

    @property
    def delay(self) -> int: ...

    @property
    def dependency(self) -> str: ...

    @property
    def exchange(self) -> str: ...

    @property
    def rows(self) -> str: ...

    @property
    def staleness(self) -> int: ...

    @property
    def staleness_metric(self) -> str: ...

    @property
    def variation_bound(self) -> float: ...


def option_problems(options: DependencyOptions) -> list[Problem]:
    """What is wrong with the options, whatever else an experiment chooses."""
    return [*_age_problems(options), *_variation_problems(options), *_exchange_problems(options)]


def _age_problems(options: DependencyOptions) -> list[Problem]:
    """Wrong ages and delays."""
    stale, is_late = options.dependency == "stale", options.delay > 0
    return rule_problems(
        (
            options.staleness >= 0,
            "staleness",
            options.staleness,
            "must be 0 (always fresh) or more epochs",
            "set paradigm.staleness=0",
        ),
        (
            options.staleness <= 0 or stale,
            "staleness",
            options.staleness,
            f"dependency={options.dependency} has no old rows",
            "set paradigm.dependency=stale, or paradigm.staleness=0",
        ),
        (options.delay >= 0, "delay", options.delay, "must be 0 (at once) or more epochs", "set paradigm.delay=0"),
        (
            not is_late or options.dependency == "communicate",
            "delay",
            options.delay,
            f"rows of dependency={options.dependency} are not late",
            "set paradigm.dependency=communicate, or paradigm.delay=0",
        ),
    )


def _variation_problems(options: DependencyOptions) -> list[Problem]:
    """A wrong bound of the variation, or a second bound."""
    by_variation, bound = options.staleness_metric == "variation", options.variation_bound
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
            f"staleness_metric={options.staleness_metric} bounds no variation",
            "set paradigm.staleness_metric=variation, or paradigm.variation_bound=0",
        ),
        (
            not by_variation or options.dependency == "stale",
            "staleness_metric",
            options.staleness_metric,
            f"dependency={options.dependency} has no old rows",
            "set paradigm.dependency=stale, or paradigm.staleness_metric=epochs",
        ),
        (
            not by_variation or options.staleness == 0 or options.dependency != "stale",
            "staleness",
            options.staleness,
            "staleness_metric=variation bounds no age",
            "set paradigm.staleness=0, or paradigm.staleness_metric=epochs",
        ),
    )


def _exchange_problems(options: DependencyOptions) -> list[Problem]:
    """Exchanges and rows that do not fit to the dependency."""
    return rule_problems(
        (
            options.exchange != "broadcast" or options.dependency not in ("cache", "hybrid"),
            "exchange",
            options.exchange,
            f"dependency={options.dependency} fetches single rows",
            "set paradigm.exchange=halo",
        ),
        (
            options.rows == "raw" or options.arrival.is_fresh,
            "rows",
            options.rows,
            "old or late rows would be projected with weights of another epoch",
            "set paradigm.rows=raw, or staleness, delay and variation_bound of paradigm to 0",
        ),
    )
