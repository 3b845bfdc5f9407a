"""One system that is tuned: its cases, its search, and its trials, judged by the records of their runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.sweeping.case import CaseState
from gnnexp.cli.sweeping.known_runs import fails_again
from gnnexp.cli.tuning.definition import MOST_TRIALS, Tuning
from gnnexp.cli.tuning.search import ProposedTrial, Search
from gnnexp.config.compose import ComposedConfig
from gnnexp.errors import DataError, ProblemsError
from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports.budgets import Budget
from gnnexp.reports.metrics import seconds_of, seconds_to

# Trials that a median needs. The first batch of trials is as large, so it is not pruned.
_LEAST = 4


@dataclass(frozen=True)
class Trial:
    """A trial that has ended.

    Attributes:
        asked: what the search has chosen.
        value: mean of the objective over the seeds; None if a run has no value.
        seconds: seconds of training of all seeds, without preparation and evaluation.
        metric: name of the validation metric, or empty.
        composed: configuration of the first seed; None if the values cannot be composed.
        curve: the best validation metric after each epoch of the first seed; NaN if there was none yet.
        pruned: whether a limit of `ProposedTrial.limits` ended it.
    """

    asked: ProposedTrial
    value: float | None
    seconds: float
    metric: str = ""
    composed: ComposedConfig | None = None
    curve: tuple[float, ...] = ()
    pruned: bool = False


@dataclass
class System:
    """A system that is tuned.

    Attributes:
        name: `<system>_<dataset>`.
        label: the overrides that distinguish it from the other systems.
        cases: overrides of its cases; they differ in the seed only.
        tuning: the section `tune` of the sweep.
        search: what chooses its trials.
        trials: trials that have ended, in their order.
        stopped: why there are no further trials, although the budget is not spent.
    """

    name: str
    label: str
    cases: Sequence[tuple[str, ...]]
    tuning: Tuning
    search: Search
    trials: list[Trial] = field(default_factory=list)
    stopped: str = ""

    def wants(self, coming: int) -> bool:
        """Whether the budget allows another trial in addition to `coming` ones."""
        enough = self.tuning.seconds is not None and self.budget.seconds >= self.tuning.seconds
        return not self.stopped and not enough and len(self.trials) + coming < (self.tuning.trials or MOST_TRIALS)

    def to_come(self, coming: int) -> int:
        """Cases after `coming` trials, at most; 0 if only seconds limit them."""
        trials = 0 if self.stopped or self.tuning.trials is None else self.tuning.trials
        return max(0, trials - len(self.trials) - coming) * len(self.cases)

    def ask(self) -> ProposedTrial:
        """Choose the next trial."""
        return replace(self.search.ask(), limits=self.limits)

    def pruned(self, asked: ProposedTrial) -> bool:
        """Whether a trial has ended, and a limit ended it."""
        return any(trial.pruned for trial in self.trials if trial.asked is asked)

    @property
    def limits(self) -> tuple[float | None, ...]:
        """Limits of the next trials by epoch: the median of the best validation metrics that earlier trials had then.

        Trials without a value do not count. An epoch that fewer than `_LEAST` trials have evaluated has no limit. A
        trial that ended before an epoch has its last metric there.
        """
        curves = [trial.curve for trial in self.trials if trial.value is not None]
        if self.tuning.pruner == "none" or len(curves) < _LEAST:
            return ()
        epochs = range(max(map(len, curves)))
        return tuple(
            None if number < self.tuning.warmup else _median([curve[min(number, len(curve) - 1)] for curve in curves])
            for number in epochs
        )

    def note(
        self, asked: ProposedTrial, checked: Sequence[CheckedConfig | ProblemsError], states: Sequence[CaseState]
    ) -> None:
        """Note how a trial has ended. A trial without an end stops the system: the next ones depend on its value."""
        if self.stopped:
            return
        trial = _judged(asked, checked, states, self.tuning)
        if trial is None:
            state = next(
                (case_state for case_state in states if not case_state.status.startswith("finished")), states[0]
            )
            self.stopped = f"trial {asked.number} is {state.status}" + f": {state.reason}" * bool(state.reason)
            return
        self.search.tell(asked, trial.value, trial.curve if trial.pruned else ())
        self.trials.append(trial)

    @property
    def budget(self) -> Budget:
        """What the trials have spent so far."""
        return Budget(
            self.name,
            len(self.trials),
            sum(trial.seconds for trial in self.trials),
            self.tuning.budget,
            is_spent=not self.stopped,
            pruned=sum(trial.pruned for trial in self.trials),
        )

    @property
    def best(self) -> Trial | None:
        """The best trial, the first one of equal trials. Trials that ended after the budget of seconds do not count."""
        ends = accumulate(trial.seconds for trial in self.trials)
        limit = math.inf if self.tuning.seconds is None else self.tuning.seconds
        counted = [trial for trial, end in zip(self.trials, ends, strict=True) if end <= limit]
        sign = 1 if self.tuning.objective == "val_metric" else -1
        return max(
            (trial for trial in counted if trial.value is not None),
            key=lambda trial: sign * (trial.value or 0.0),
            default=None,
        )


def _judged(
    asked: ProposedTrial,
    checked: Sequence[CheckedConfig | ProblemsError],
    states: Sequence[CaseState],
    tuning: Tuning,
) -> Trial | None:
    """The trial with its value; None if a run has not ended, or failed for a reason outside of its configuration."""
    right = [config.composed for config in checked if isinstance(config, CheckedConfig)]
    if len(right) < len(checked):
        return Trial(asked, None, 0.0)
    runs = []
    for state in states:
        run = _ended(state)
        if run is None or not (run.status == "finished" or fails_again(run)):
            return None
        runs.append(run)
    pruned = bool(asked.limits) and any(run.ended == "stop_below" for run in runs)
    values = [objective_of(run, tuning) for run in runs]
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if len(known) == len(values) and not pruned else None
    return Trial(
        asked, mean, sum(map(seconds_of, runs)), runs[0].best("val")[0], right[0], validation_curve(runs[0]), pruned
    )


def validation_curve(run: RecordedRun) -> tuple[float, ...]:
    """The best validation metric after each epoch; NaN if there was none yet."""
    name = run.best("val")[0]
    return tuple(
        accumulate(
            (epoch.get(name, math.nan) for epoch in run.epochs),
            lambda best, now: now if math.isnan(best) or now > best else best,
        )
    )


def _median(values: Sequence[float]) -> float | None:
    """The median of the numbers, rounded down to 4 decimals; None if there are fewer than `_LEAST`."""
    numbers = [value for value in values if not math.isnan(value)]
    return math.floor(statistics.median(numbers) * 1e4) / 1e4 if len(numbers) >= _LEAST else None


def _ended(state: CaseState) -> RecordedRun | None:
    """The run of a case if it has ended and counts for the case."""
    if state.run_dir and state.status in ("finished", "finished before", "failed"):
        with suppress(DataError):
            return read_run(Path(state.run_dir))
    return None


def objective_of(run: RecordedRun, tuning: Tuning) -> float | None:
    """The value of the objective; None if the run failed, was not evaluated, or did not reach the target."""
    best = run.best("val")[1]
    if run.status != "finished" or math.isnan(best):
        return None
    if tuning.objective == "val_metric":
        return best
    assert tuning.target is not None
    seconds = seconds_to(tuning.target, run)
    return None if math.isnan(seconds) else seconds
