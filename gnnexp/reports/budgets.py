"""What tuning has spent on each system, in one sentence: a comparison is fair only if the budgets are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gnnexp.components.signature import key_problems, parameters_of_dataclass
from gnnexp.record.runs import RecordedRun

# The key of a configuration under which a preset of `gnnexp tune` notes its budget.
TUNED = "tuned"


@dataclass(frozen=True)
class Budget:
    """What tuning has spent on a system.

    Attributes:
        name: the system, with its dataset.
        trials: number of its trials.
        seconds: seconds of training of its trials, without preparation and evaluation.
        of: the budget in words: `12 trials`.
        is_spent: whether the whole budget was used.
        pruned: number of trials that were pruned.
    """

    name: str
    trials: int
    seconds: float
    of: str
    is_spent: bool = True
    pruned: int = 0

    def describe(self) -> str:
        """The budget in words: `dgl_digits 12 trials (3 pruned), 22.6 s of training`."""
        count = f"{self.trials} trial{'' if self.trials == 1 else 's'}" + f" ({self.pruned} pruned)" * bool(self.pruned)
        return f"{self.name} {count}, {self.seconds:.1f} s of training"

    def note(self) -> dict[str, Any]:
        """The budget as the value of the key `tuned`."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def describe_budgets(budgets: Sequence[Budget], untuned: Sequence[str] = ()) -> str:
    """One sentence with every budget, and whether they are equal; empty if nothing was tuned.

    Args:
        budgets: budgets of the systems.
        untuned: names of systems in the same table that were not tuned.
    """
    if not budgets:
        return ""
    spent = "; ".join(budget.describe() for budget in budgets)
    short = [budget.name for budget in budgets if not budget.is_spent]
    if short:
        judged = f"budgets are not equal: {', '.join(short)} did not use the budget of {budgets[0].of}"
    elif untuned:
        judged = f"budgets are not equal: {', '.join(untuned)} had none"
    elif len({budget.of for budget in budgets}) > 1:
        judged = "budgets are not equal: " + ", ".join(f"{budget.name} had {budget.of}" for budget in budgets)
    else:
        judged = f"equal budgets ({budgets[0].of} each)"
    return f"Tuning: {spent}; {judged}."


def of_runs(runs: Sequence[RecordedRun]) -> str:
    """The same sentence about runs with presets of `gnnexp tune`; empty if no run has one."""
    found = {name: _noted(run) for run in runs for name in (f"{run.value('system')}_{run.value('dataset')}",)}
    budgets = list(dict.fromkeys(one for one in found.values() if one is not None))
    return describe_budgets(budgets, [name for name, one in found.items() if one is None])


def _noted(run: RecordedRun) -> Budget | None:
    """The budget that the run's configuration names. The key may also be a user's own, with other content."""
    node = run.config.get(TUNED)
    fields = parameters_of_dataclass(Budget)
    return Budget(**node) if isinstance(node, Mapping) and not key_problems(TUNED, node, fields) else None
