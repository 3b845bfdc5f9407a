"""How uneven loads are by chance alone, if targets are dealt to ranks uniformly at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnexp.experiment.build import global_batch_size
from gnnexp.planning.work import num_steps
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import evaluate, names_in
from gnnexp.reports.labels import setting_of
from gnnexp_papers.claim import Expects
from gnnexp_papers.pairs import Found

_DRAWS = 4096
_SEED = 0
_NORMAL = 1.96  # 97.5 % quantile of the normal distribution, for a mean over batches


@dataclass(frozen=True)
class Chance:
    """Most over mean of the ranks' targets, if each target goes to a rank uniformly at random.

    Attributes:
        targets: number of targets in a batch.
        ranks: number of ranks that the targets are dealt to.
        batches: number of batches that an epoch's value is the mean of.
        mean: expected value of most over mean.
        half: half the width of the 95 % interval of a mean over `batches`.
    """

    targets: int
    ranks: int
    batches: int
    mean: float
    half: float

    def __str__(self) -> str:
        return f"chance alone: {self.mean:.3g} ± {self.half:.2g} ({self.targets} targets on {self.ranks} ranks)"


def is_of_balance(value: str) -> bool:
    """Whether an expression measures how even the ranks' loads are."""
    return bool(_loads(value))


def chance_of(run: RecordedRun) -> Chance:
    """Chance for the batches of `run`. All vertices of a full graph are dealt once, and not again in every epoch."""
    sizes, ranks = run.provenance["graph"], setting_of(run).ranks
    batch = global_batch_size(run.config)
    targets = min(int(batch), int(sizes["num_train"])) if batch else int(sizes["num_nodes"])
    batches = num_steps(run) * run.num_warm if batch else 1
    mean, deviation = dealt(targets, ranks)
    return Chance(targets, ranks, batches, mean, _NORMAL * deviation / math.sqrt(batches))


@cache
def dealt(targets: int, ranks: int) -> tuple[float, float]:
    """Mean and standard deviation of most over mean, from 4096 seeded draws."""
    draws = np.random.default_rng(_SEED).multinomial(targets, [1 / ranks] * ranks, size=_DRAWS)
    most = draws.max(axis=1) * ranks / targets
    return float(most.mean()), float(most.std())


def with_chance(found: Found, value: str, expects: Expects) -> tuple[float, float]:
    """Value and half interval of a pair. If there is no interval over seeds, it comes from the draw of the targets.

    A value of one side is a count. It has only the interval over its seeds.
    """
    if not found.over or not math.isnan(found.half):
        return found.value, found.half
    (of, half), (over, other_half) = (_at_chance(side[0], value) for side in (found.of, found.over))
    if expects.statistic == "difference":
        return found.value, math.hypot(half, other_half)
    ratio = found.value if expects.statistic == "ratio" else 100 - found.value
    return found.value, abs(ratio) * math.hypot(half / of, other_half / over)


def is_chance(found: Found) -> bool:
    """Whether chance alone explains a value of one side."""
    chance = chance_of(found.of[0])
    return not found.over and abs(found.value - chance.mean) <= chance.half


def chances(found: Sequence[Found]) -> list[Chance]:
    """The chances of all pairs, each once."""
    return sorted({chance_of(one.of[0]) for one in found}, key=lambda chance: (chance.ranks, chance.targets))


def _at_chance(run: RecordedRun, value: str) -> tuple[float, float]:
    """The value of an expression if loads are as chance makes them, and half its interval."""
    chance = chance_of(run)
    at = [evaluate(value, run, dict.fromkeys(_loads(value), load)) for load in (chance.mean, chance.mean + chance.half)]
    return at[0], abs(at[1] - at[0])


def _loads(value: str) -> list[str]:
    return [name for name in names_in(value) if name.startswith("imbalance/")]
