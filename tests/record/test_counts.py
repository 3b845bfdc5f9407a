"""The largest counts: what the configuration allows can be read from the run's record, and nothing larger starts."""

from __future__ import annotations

from typing import Any

import pytest

from gnnexp.components.schema import MOST_COUNTED
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import hardware_of, train_of
from gnnexp.experiment.check import range_problems
from gnnexp.feature_stores.embedding import EmbeddingOptions
from gnnexp.models.gcn import GCNOptions
from gnnexp.record.shape import check_job
from gnnexp.tasks.link_prediction import LinkPredictionOptions


def of_a_run(count: int) -> dict[str, Any]:
    return {
        "config": {
            "dataset": {},
            "model": {"hidden": count},
            "feature_store": {"dim": count},
            "task": {"dim": count},
            "train": {},
            "hardware": {"launcher": {}, "nodes": count, "workers": count},
        },
        "provenance": {},
    }


def outside(config: dict[str, Any]) -> list[Problem]:
    return range_problems(train_of(config), hardware_of(config))


def test_a_record_has_the_largest_counts_of_a_configuration():
    assert not GCNOptions(MOST_COUNTED, 2).problems()
    EmbeddingOptions(MOST_COUNTED).make()
    LinkPredictionOptions(dim=MOST_COUNTED).make()
    assert not outside(of_a_run(MOST_COUNTED)["config"])
    check_job(of_a_run(MOST_COUNTED))


@pytest.mark.parametrize(
    "make", [EmbeddingOptions, lambda count: LinkPredictionOptions(dim=count)], ids=["rows", "task"]
)
def test_larger_counts_are_refused(make):
    with pytest.raises(ConfigError, match="at most 2,147,483,647"):
        make(MOST_COUNTED + 1)


def test_larger_models_and_more_ranks_are_refused():
    assert [problem.key for problem in GCNOptions(MOST_COUNTED + 1, 2).problems()] == ["model.hidden"]
    problems = outside(of_a_run(MOST_COUNTED + 1)["config"])
    assert [problem.key for problem in problems] == ["hardware.nodes", "hardware.workers"]


def test_whole_numbers_of_more_than_64_bits_are_refused():
    """Sizes are computed from them, as floats in the end."""
    config = {**of_a_run(1)["config"], "train": {"epochs": 10**400, "checkpoint_every": 1 << 63, "batch_size": 1 << 62}}
    problems = outside(config)
    assert [problem.key for problem in problems] == ["train.epochs", "train.checkpoint_every"]
    assert "a whole number of at most 9,223,372,036,854,775,807" in problems[0].allowed and len(str(problems[0])) < 300
