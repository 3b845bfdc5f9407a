"""Filtered ranks against brute force: ties, self links, links known twice; and pieces of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linked_graphs import linked_graph, linked_graphs
from torch import Tensor, nn

from gnnexp.graph.graph import Graph
from gnnexp.tasks.decoders import Decoder, DistMult
from gnnexp.tasks.link_prediction import LinkPrediction, LinkPredictionOptions
from gnnexp.tasks.ranking import Scorer, pair_scores


class Shifted(Decoder):
    """Tells heads from tails; whole numbers, so that many scores are the same."""

    def build(self, num_relations: int) -> None:
        self.shift = nn.Parameter(torch.empty(max(1, num_relations), self.dim))

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            self.shift.copy_(torch.randint(-1, 2, self.shift.shape, generator=generator))

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        shift = self.shift if relation is None else self.shift[relation]
        return -(head + shift - tail).abs().sum(1)


def task_of(graph: Graph, decoder: Decoder, dim: int) -> LinkPrediction:
    task = LinkPredictionOptions(decoder=decoder).make()
    task.setup(graph)
    task.decoder(dim, seed=0, dtype=torch.float32, device=torch.device("cpu"))
    return task


def brute_force(task: LinkPrediction, graph: Graph, outputs: Tensor) -> list[float]:
    """Ranks of the test links, sorted, one candidate at a time."""
    links = [tuple(link) for name in ("train", "valid", "test") for link in graph.links[name].tolist()]
    known = {*links, *((t, h) for h, *kind, t in links if not kind)}

    def score(head: int, kind: list[int], tail: int) -> float:
        relation = torch.tensor(kind) if kind else None
        return task.head.score(outputs[[head]], relation, outputs[[tail]]).item()

    ranks = []
    for head, *kind, tail in graph.links["test"].tolist():
        own = score(head, kind, tail)
        for side in (0, 1):
            others = [(v, *kind, tail) if side == 0 else (head, *kind, v) for v in range(graph.num_nodes)]
            scores = [score(h, k, t) for h, *k, t in others if (h, *k, t) not in known]
            ranks.append(1 + sum(s > own for s in scores) + sum(s == own for s in scores) / 2)
    return sorted(ranks)


@given(linked_graphs(), st.booleans(), st.sampled_from([1, 300, 2000, 1 << 20]), st.data())
@settings(max_examples=60)
def test_ranks_are_those_of_brute_force(graph: Graph, symmetric: bool, budget: int, data: st.DataObject) -> None:
    whole = st.lists(st.integers(-2, 2), min_size=3 * graph.num_nodes, max_size=3 * graph.num_nodes)
    outputs = torch.tensor(data.draw(whole), dtype=torch.float32).view(-1, 3)
    task = task_of(graph, DistMult() if symmetric else Shifted(), 3)
    if symmetric:
        with torch.no_grad():
            task.head.get_parameter("relation_weight").mul_(10).round_()
    count = graph.links["test"].shape[0]
    cut = data.draw(st.integers(0, count))
    found = [
        piece["rank"]
        for share in (torch.arange(cut, count), torch.arange(cut))
        for piece in task.score_pairs("test", outputs, share, budget)
    ]
    assert sorted(np.concatenate([np.empty(0), *found]).tolist()) == brute_force(task, graph, outputs)


@pytest.mark.parametrize("typed", [False, True])
def test_the_size_of_pieces_and_equal_vertices_change_nothing(typed: bool) -> None:
    """Vertices without edges and features have the very same outputs: they must tie, whatever a product rounds to."""
    graph = linked_graph(150, typed, sizes=(100, 10, 12))
    outputs = torch.randn(150, 37, generator=torch.Generator().manual_seed(0))
    outputs[80:] = outputs[80]
    task, everyone = task_of(graph, DistMult(), 37), torch.arange(12)
    ranks = {
        budget: np.sort(np.concatenate([p["rank"] for p in task.score_pairs("test", outputs, everyone, budget)]))
        for budget in (1, 5_000, 30_000, 1 << 22)
    }
    assert len(list(task.score_pairs("test", outputs, everyone, 5_000))) > 10
    assert all((found == ranks[1]).all() for found in ranks.values())
    tied = (graph.links["test"][:, [0, -1]] >= 80).any(1).sum()
    assert tied > 5 and np.unique(ranks[1]).size < ranks[1].size
    assert {str(task.metrics(list(task.score_pairs("test", outputs, everyone, b)))) for b in ranks} == {
        str(task.metrics([{"rank": ranks[1][::-1]}]))
    }


def test_what_is_not_a_number_is_not_taken_for_perfect() -> None:
    graph = linked_graph(100, typed=False)
    task = task_of(graph, DistMult(), 4)
    pieces = list(task.score_pairs("test", torch.full((100, 4), float("nan")), torch.arange(12), 1 << 20))
    assert task.metrics(pieces)["mrr"] < 0.05


def test_pairs_are_scored_in_pieces_in_order() -> None:
    graph = linked_graph(50, typed=True)
    task, outputs = task_of(graph, DistMult(), 4), torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    pieces = list(pair_scores(Scorer.of(task.head, outputs), graph.links["train"], 600))
    head, relation, tail = graph.links["train"].T
    assert len(pieces) > 5
    expected = task.head.score(outputs[head], relation, outputs[tail]).detach()
    assert torch.allclose(torch.from_numpy(np.concatenate(pieces)), expected, rtol=1e-5)
