"""The epoch's record is made of sums over ranks, never of means of means."""

from __future__ import annotations

from gnnexp.measure.phases import PHASES, PhaseTimes
from gnnexp.measure.record import RankRecord, reduce_epoch, step_losses

TIMES = PhaseTimes(1.0, dict.fromkeys(PHASES, 0.0), {}, {})
# Three ranks with 3, 1 and no targets in the first step; 2, 0 and 2 in the second.
RANKS = [
    RankRecord(rank, TIMES, {}, {}, {}, losses)
    for rank, losses in enumerate([[(6.0, 3), (1.0, 2)], [(4.0, 1), (0.0, 0)], [(0.0, 0), (3.0, 2)]])
]


def test_a_steps_loss_is_the_sum_over_all_targets_by_their_number() -> None:
    assert step_losses(RANKS) == [10.0 / 4, 4.0 / 4]
    assert step_losses([RankRecord(0, TIMES, {}, {}, {}, [(0.0, 0)])]) == [0.0], "nobody has a target"


def test_an_epochs_loss_weighs_every_target_alike() -> None:
    assert reduce_epoch(RANKS)["loss/train"] == 14.0 / 8
