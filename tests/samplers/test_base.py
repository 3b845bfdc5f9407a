"""Options that all samplers share: refused with key and fix, all at once."""

from __future__ import annotations

import pytest
from reference_sampling import graph_of

from gnnexp.errors import ConfigError
from gnnexp.graph.shard import Shard
from gnnexp.samplers.base import threads_inside
from gnnexp.samplers.dgl import DGLOptions
from gnnexp.samplers.full import FullOptions
from gnnexp.samplers.fused import FusedOptions


@pytest.mark.parametrize("fanouts", [[], [0], [5, 0], [-2], [10, -1, -5]])
@pytest.mark.parametrize("kind", [FusedOptions, DGLOptions])
def test_bad_fanouts_are_refused(kind: type[FusedOptions] | type[DGLOptions], fanouts: list[int]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(fanouts)
    assert [(problem.key, problem.value) for problem in caught.value.problems] == [("sampler.fanouts", fanouts)]


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        FusedOptions([0], key="mini", topology="halved", threads=-1, prefetch=0)  # type: ignore[arg-type]
    keys = ["sampler.fanouts", "sampler.key", "sampler.topology", "sampler.threads", "sampler.prefetch"]
    assert [problem.key for problem in caught.value.problems] == keys


@pytest.mark.parametrize("kind", [FusedOptions, DGLOptions])
def test_number_of_fanouts_must_be_that_of_layers(kind: type[FusedOptions] | type[DGLOptions]) -> None:
    sampler = kind([5, 3]).make()
    with pytest.raises(ConfigError, match=r"sampler\.fanouts"):
        sampler.setup(Shard(graph_of([1, 1], 2, 0)), num_layers=3)


def test_options_are_kept() -> None:
    sampler = FusedOptions([5, -1], key="micro", threads=0, prefetch=7)
    assert (sampler.fanouts, sampler.key, sampler.threads, sampler.prefetch) == ((5, -1), "micro", 0, 7)
    assert FullOptions().fanouts is None
    assert FusedOptions.exact_key
    assert FullOptions.exact_key
    assert not DGLOptions.exact_key


@pytest.mark.parametrize(
    ("threads", "at_once", "expected"),
    [(0, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2, 1), (4, 2, 2), (5, 2, 2), (3, 7, 1), (8, 3, 2)],
)
def test_threads_that_are_left_work_inside_each_batch(threads: int, at_once: int, expected: int) -> None:
    inside = threads_inside(threads, at_once)
    assert inside == expected
    assert inside * max(1, min(threads, at_once)) <= max(1, threads), "never more than were asked for"
