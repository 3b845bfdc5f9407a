import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.splits.split import check_fractions, given_split, per_class_split, random_split
from gnnexp.errors import ConfigError, DataError


@given(st.integers(1, 300), st.floats(0, 0.6), st.floats(0, 0.4), st.integers(0, 2**40), st.booleans())
def test_random_split_is_disjoint_exhaustive_and_of_the_right_sizes(
    num_nodes: int, train: float, val: float, seed: int, partly: bool
) -> None:
    among = np.arange(num_nodes) % 3 != 0 if partly else np.ones(num_nodes, bool)
    splits = random_split(num_nodes, train, val, seed=seed, among=among if partly else None)
    drawn = torch.cat([splits.train, splits.val, splits.test])
    assert drawn.sort().values.tolist() == np.flatnonzero(among).tolist()
    assert splits.train.numel() == min(round(train * among.sum()), among.sum())
    for ids in (splits.train, splits.val, splits.test):
        assert torch.equal(ids, ids.sort().values)


def test_test_share_limits_the_test_set() -> None:
    splits = random_split(1000, 0.1, 0.2, seed=0, test=0.3)
    assert [ids.numel() for ids in (splits.train, splits.val, splits.test)] == [100, 200, 300]


def test_a_vertex_keeps_its_rank_when_others_come() -> None:
    """Who is drawn depends on (seed, vertex) only: training vertices of a graph stay so in a larger share."""
    small, large = random_split(500, 0.1, 0, seed=3), random_split(500, 0.4, 0, seed=3)
    assert set(small.train.tolist()) < set(large.train.tolist())


def test_draws_are_uniform_over_vertices_and_independent_of_their_number() -> None:
    hits = np.zeros(400)
    for seed in range(300):
        hits[random_split(400, 0.25, 0.25, seed=seed).train] += 1
    # Each is binomial(300, 0.25): mean 75, sd 7.5; chi-square of 400 cells has mean 400, sd 28.
    chi = ((hits - 75) ** 2 / (75 * 0.75)).sum()
    assert 290 < chi < 510
    assert abs(np.corrcoef(hits[:-1], hits[1:])[0, 1]) < 0.2


def test_per_class_split_takes_as_many_of_each() -> None:
    labels = np.repeat([0, 1, 2, -1], 20)
    among = np.ones(80, bool)
    among[0] = False
    splits = per_class_split(labels, 5, 3, seed=0, among=among)
    assert np.bincount(labels[splits.train]).tolist() == [5, 5, 5]
    assert np.bincount(labels[splits.val]).tolist() == [3, 3, 3]
    assert np.bincount(labels[splits.test]).tolist() == [11, 12, 12]
    with pytest.raises(DataError) as error:
        per_class_split(labels, 15, 5, seed=0, among=among)
    assert len(error.value.problems) == 3


def test_given_masks_and_ids() -> None:
    splits = given_split(np.array([False, True, True]), np.array([0], np.int32), np.array([], np.int64))
    assert (splits.train.tolist(), splits.val.tolist(), splits.test.tolist()) == ([1, 2], [0], [])
    assert splits.val.dtype == torch.int64


def test_shares_are_checked_together() -> None:
    check_fractions(train=0.6, val=0.2, test=None)
    with pytest.raises(ConfigError) as error:
        check_fractions(train=-1, val=2)
    assert len(error.value.problems) == 2
    with pytest.raises(ConfigError, match="add up"):
        check_fractions(train=0.8, val=0.3)
    with pytest.raises(ConfigError):
        check_fractions(train=float("nan"))
