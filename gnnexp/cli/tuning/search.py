"""The search of one system: Optuna chooses trials by the values of earlier trials.

Trials of a search are not stored. The seed, the values of the trials and Optuna's version determine it, and records
have the values. So the same command makes the same trials again, finds them finished, and goes on after them. The
version is noted (`gnnexp.cli.tuning.chooser`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.cli.sweeping.definition import override_text
from gnnexp.cli.tuning.chooser import OPTIONS
from gnnexp.cli.tuning.definition import LIMITS, Tuning
from gnnexp.components.packages import is_installed, missing_package
from gnnexp.errors import ConfigError

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class ProposedTrial:
    """A trial that the search has chosen.

    Attributes:
        number: number of the trial in its system, from 0.
        values: the value of each key, as Hydra writes it.
        trial: Optuna's trial.
        limits: limits of the validation metric by epoch (`train.stop_below`); empty: the trial is not pruned.
    """

    number: int
    values: dict[str, str]
    trial: optuna.trial.Trial
    limits: tuple[float | None, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The overrides of the trial."""
        lines = tuple(f"{key}={value}" for key, value in self.values.items())
        return (*lines, f"{LIMITS}={override_text(list(self.limits))}") if self.limits else lines

    @property
    def label(self) -> str:
        """The trial in few words: numbers have three digits."""
        return f"trial {self.number}: " + " ".join(f"{key}={_short(value)}" for key, value in self.values.items())


class Search:
    """Chooses the trials of one system.

    Args:
        tuning: what may vary, and what is best.
    """

    def __init__(self, tuning: Tuning) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():  # the options are ours, so no user can heed a warning of them
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=tuning.seed, **OPTIONS)
        more = tuning.objective == "val_metric"
        study = optuna.create_study(direction="maximize" if more else "minimize", sampler=sampler)
        self._tuning, self._study = tuning, study

    def ask(self) -> ProposedTrial:
        """Choose the next trial."""
        trial, values = self._study.ask(), {}
        for distribution in self._tuning.distributions:
            if distribution.choices:
                values[distribution.key] = str(trial.suggest_categorical(distribution.key, distribution.choices))
            elif distribution.is_whole:
                values[distribution.key] = str(
                    trial.suggest_int(
                        distribution.key, int(distribution.low), int(distribution.high), log=distribution.log
                    )
                )
            else:
                values[distribution.key] = str(
                    trial.suggest_float(distribution.key, distribution.low, distribution.high, log=distribution.log)
                )
        return ProposedTrial(trial.number, values, trial)

    def tell(self, proposed: ProposedTrial, value: float | None, pruned: Sequence[float] = ()) -> None:
        """Note the value of a trial. None, for a trial that reached nothing, is worse than any value.

        Args:
            proposed: the trial.
            value: its value; None if it has none.
            pruned: the best validation metric after each epoch of a pruned trial; NaN if there was none yet. A pruned
                trial is worse than any value, and better than a trial that was pruned earlier.
        """
        from optuna.trial import TrialState

        for epoch, best in enumerate(pruned):
            if not math.isnan(best):
                proposed.trial.report(best, epoch)
        if value is None:
            self._study.tell(proposed.trial, state=TrialState.PRUNED)
        else:
            self._study.tell(proposed.trial, value)


def check_optuna() -> None:
    """Check that Optuna is installed.

    Raises:
        ConfigError: it is not.
    """
    if not is_installed("optuna"):
        raise ConfigError(missing_package("gnnexp", "tune", "optuna"))


def _short(value: str) -> str:
    try:
        return format(float(value), ".3g") if "." in value or "e" in value else value
    except ValueError:
        return value
