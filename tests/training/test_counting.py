"""A counting run counts what a training run counts, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from combinations import combinations
from virtual import virtual_curves

from gnnexp.errors import RunError, UncountableError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.check import choice_problems
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.testing.exactness import ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import WAYS, config_in, placed, way_problems

STEPS = 3


def sparse_graph() -> Graph:
    graph = nasty_graph(seed=4)
    assert isinstance(graph.features, torch.Tensor)
    kept = graph.features * (graph.features > 0)
    columns = [row.nonzero().flatten() for row in kept]
    indptr = torch.tensor([0, *torch.tensor([column.numel() for column in columns]).cumsum(0).tolist()])
    values = torch.cat([row[column] for row, column in zip(kept, columns, strict=True)])
    return replace(graph, features=SparseRows(indptr, torch.cat(columns).int(), values, kept.shape[1]))


GRAPHS: Mapping[str, Callable[[], Graph]] = {"dense": nasty_graph, "sparse": sparse_graph}


def assert_equal_counts(
    ranks: RankPools, way: str, config: Mapping[str, Any], size: int, make: Callable[[], Graph], kind: str = "random"
) -> None:
    partition = placed(way, make(), size, kind)
    trained = ranks(size).run(ranks_steps, make, config, STEPS, None, kind, partition)
    graph = make()
    counted = virtual_curves(config, graph, size, STEPS, partition, torch.arange(graph.num_nodes) % 7)
    assert any(curve.work for curve in trained)
    for rank, (curve, other) in enumerate(zip(trained, counted, strict=True)):
        assert other.sent_bytes == curve.sent_bytes, rank
        assert other.rounds == curve.rounds, rank
        assert other.work == curve.work, rank


@pytest.mark.parametrize(
    ("way", "model", "size", "form"),
    combinations(
        WAYS,
        MODELS,
        (1, 2, 3, 4),
        GRAPHS,
        quick=lambda way, model, size, form: size == 3 and (model, form) == ("gat", "dense"),
    ),
)
def test_each_way_counts_what_it_trains(ranks: RankPools, way: str, model: str, size: int, form: str) -> None:
    config = config_in(way, MODELS[model])
    if way_problems(config):
        pytest.skip("the model is not trained in this way")
    assert_equal_counts(ranks, way, config, size, GRAPHS[form])


@pytest.mark.parametrize("kind", ["skewed", "empty"])
@pytest.mark.parametrize("way", ["split", "communicate", "offload"])
def test_uneven_and_empty_parts(ranks: RankPools, way: str, kind: str) -> None:
    assert_equal_counts(ranks, way, config_in(way, MODELS["gcn"]), 3, nasty_graph, kind)


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": {"device": "cuda"}},
        {"train": {"patience": 3, "eval_every": 1}},
        {"feature_store": {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 8}},
    ],
    ids=["hardware.device", "train.patience", "feature_store"],
)
def test_what_cannot_be_counted_is_refused(change: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
    config = config_in("data", MODELS["sage"], **change)
    config["train"]["count_only"] = True
    problems = choice_problems(experiment_of(config))
    assert request.node.callspec.id in [problem.key for problem in problems]


def test_the_first_error_of_a_rank_ends_all() -> None:
    graph = nasty_graph()
    config = config_in("communicate", MODELS["sage"])
    config["paradigm"] = {**config["paradigm"], "dependency": "stale", "staleness_metric": "variation"}
    config["paradigm"]["variation_bound"] = 0.1
    with pytest.raises(UncountableError, match="asks for values"):
        virtual_curves(config, graph, 3, 3, placed("communicate", graph, 3))


def test_ranks_that_wait_are_told() -> None:
    from gnnexp.comm.virtual import Turns, VirtualCarrier
    from gnnexp.training.counting import take_turns

    turns, told = Turns(), []

    def rank(number: int) -> None:
        if number == 2:
            raise ValueError("broken")
        try:
            VirtualCarrier(turns, (0, 1, 2), number).all_reduce(torch.ones(1))
        except RunError as error:
            told.append(str(error))
            raise

    with pytest.raises(ValueError, match="broken"):
        take_turns(3, rank, turns)
    assert told in (["another rank failed"] * 2, ["another rank failed"], [])


def test_collectives_give_what_ranks_need() -> None:
    from gnnexp.comm.virtual import Turns, VirtualCarrier
    from gnnexp.training.counting import take_turns

    turns, results = Turns(), {}

    def rank(number: int) -> None:
        carrier = VirtualCarrier(turns, (0, 1, 2), number)
        total = torch.tensor([float(number)])
        carrier.all_reduce(total)
        copied = torch.tensor([number])
        carrier.broadcast(copied, 1)
        target = torch.empty(3, dtype=torch.int64)
        carrier.all_to_all(target, torch.arange(3) + 10 * number, [1, 1, 1], [1, 1, 1])
        parts = [torch.empty(peer + 1) for peer in range(3)]
        carrier.spread(torch.full((number + 1,), float(number)), parts, number)
        most = torch.tensor([number, -number])
        carrier.start_max(most).wait()
        gathered = carrier.gather(torch.tensor([number]), 3)
        pair = carrier.among((0, 2), number) if number != 1 else carrier.among((1,), 1)
        both = torch.tensor([float(number)])
        pair.all_reduce(both)
        spread = [part.tolist() for peer, part in enumerate(parts) if peer != number]
        results[number] = (total.item(), copied.item(), target.tolist(), spread, most.tolist(), gathered, both.item())

    take_turns(3, rank, turns)
    for number in range(3):
        total, copied, target, spread, most, gathered, both = results[number]
        assert (total, copied, most) == (3.0, 1, [2, 0])
        assert target == [number, 10 + number, 20 + number]
        assert spread == [[float(peer)] * (peer + 1) for peer in range(3) if peer != number]
        assert [int(part) for part in gathered] == [0, 1, 2]
        assert both == (2.0 if number != 1 else 1.0)
