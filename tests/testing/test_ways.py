"""The arguments of tests of users' components; such tests can fail."""

from __future__ import annotations

import pytest
import torch

from gnnexp.errors import ConfigError
from gnnexp.testing.ranks import RankError
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import WAYS, assert_exact_in, config_in

WHOLE = {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}


@pytest.mark.parametrize("way", ["projections", "vertex_cut", "coupled", "offload_projected"])
def test_a_way_that_layers_are_not_for_is_told_before_any_rank_starts(way):
    with pytest.raises(ConfigError, match="fix: "):
        assert_exact_in(None, way, WHOLE)


@pytest.mark.parametrize("way", ["data", "communicate"])
def test_a_layer_that_is_not_exact_is_found(ranks, way):
    """The control."""
    model = {"_target_": "inexact_model.Inexact"}
    with pytest.raises(AssertionError, match=r"(loss|gradient) differs by"):
        assert_exact_in(ranks, way, model, 2, steps=2)


def test_a_rank_that_fails_is_an_error_with_its_traceback(ranks):
    with pytest.raises(RankError, match=r"rank [01] of 2:(?s:.)*ValueError: said by a rank"):
        ranks(2).run(_fail)
    assert ranks(2).run(_answer) == [0, 1], "the next case gets new ranks"


def test_a_case_that_is_broken_off_leaves_no_answer_to_the_next_one(ranks, monkeypatch):
    """As pytest's time limit breaks it off: by an exception wherever the test is."""
    assert ranks(2).run(_answer) == [0, 1]
    with monkeypatch.context() as patched:
        patched.setattr("gnnexp.testing.ranks.wait", _break_off)
        with pytest.raises(KeyboardInterrupt):
            ranks(2).run(_say, "late")
    assert ranks(2).run(_say, "next") == ["next", "next"]


def _break_off(pipes, timeout):
    raise KeyboardInterrupt


def _say(word):
    return word


def _fail():
    raise ValueError("said by a rank")


def _answer():
    return torch.distributed.get_rank()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_takes_the_models_of_the_contract(way):
    assert config_in(way, MODELS["sage"])["paradigm"] == WAYS[way][0]
