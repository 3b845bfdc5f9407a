"""Decoders: one definition of a score, whichever way it is asked for, and parameters that follow from the seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError
from gnnexp.graph.block import BatchKey
from gnnexp.tasks.decoders import MLP, Decoder, DistMult, Dot
from gnnexp.tasks.link_prediction import LinkPrediction, LinkPredictionOptions
from gnnexp.testing.graphs import nasty_graph

RELATIONS, DIM = 3, 6


class Translation(Decoder):
    """A user's own: -|h + r - t|, which tells heads from tails."""

    def build(self, num_relations: int) -> None:
        self.shift = nn.Parameter(torch.empty(num_relations, self.dim))

    def reset(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.shift, generator=generator)

    def score(self, head: Tensor, relation: Tensor | None, tail: Tensor) -> Tensor:
        return -(head + self.shift[relation] - tail).norm(dim=1)


def made(decoder: Decoder, seed: int = 0, num_relations: int = RELATIONS) -> Decoder:
    decoder.setup(DIM, num_relations, seed=seed, dtype=torch.float64, device=torch.device("cpu"))
    return decoder


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decoder", [Dot, DistMult, MLP, lambda: MLP(1), lambda: MLP(2, 5), Translation])
@pytest.mark.parametrize("heads", [False, True])
def test_ranking_scores_are_the_pairs_scores(decoder: type[Decoder], heads: bool) -> None:
    one, kept, others, relation = made(decoder()), rows(4, 0), rows(7, 1), torch.tensor([2, 0, 1, 2])
    found = one.against(kept, relation, others, heads=heads)
    assert found.shape == (4, 7) and found.std() > 0.01
    for i in range(4):
        for j in range(7):
            ends = (others[j : j + 1], kept[i : i + 1])
            head, tail = ends if heads else ends[::-1]
            assert torch.allclose(found[i, j], one.score(head, relation[i : i + 1], tail)[0], rtol=1e-12)


def test_scores_are_those_of_the_formulas() -> None:
    head, tail, relation = rows(5, 0), rows(5, 1), torch.tensor([0, 1, 2, 1, 1])
    dist, mlp = made(DistMult()), made(MLP(2, 4))
    assert torch.allclose(made(Dot()).score(head, None, tail), (head @ tail.T).diagonal(), rtol=1e-12)
    formula = torch.einsum("pc,pc,pc->p", head, dist.relation_weight[relation], tail)
    assert torch.allclose(dist.score(head, relation, tail), formula, rtol=1e-12)
    (w1, b1), (w2, b2) = (tuple(linear.parameters()) for linear in mlp.maps)
    assert w1.shape == (4, DIM)
    assert torch.allclose(mlp.score(head, relation, tail), ((head * tail @ w1.T + b1).relu() @ w2.T + b2)[:, 0])


def test_links_without_types_share_a_vector() -> None:
    dist = made(DistMult(), num_relations=0)
    head, tail = rows(5, 0), rows(5, 1)
    assert dist.relation_weight.shape == (1, DIM) and dist.relations() is dist.relation_weight
    assert torch.allclose(dist.against(head, None, tail).diagonal(), dist.score(head, None, tail), rtol=1e-12)


@pytest.mark.parametrize("decoder", [DistMult, MLP, Translation])
def test_parameters_follow_from_the_seed(decoder: type[Decoder]) -> None:
    first, again, other = (torch.cat([p.flatten() for p in made(decoder(), seed).parameters()]) for seed in (5, 5, 6))
    assert first.equal(again) and not torch.isclose(first, other).any()
    torch.manual_seed(1)
    assert first.equal(torch.cat([p.flatten() for p in made(decoder(), 5).parameters()]))


def test_mistakes_are_told_together() -> None:
    with pytest.raises(ConfigError) as error:
        MLP(layers=0, hidden=0)
    assert [problem.key for problem in error.value.problems] == ["task.decoder.layers", "task.decoder.hidden"]


def test_dropout_of_an_mlp_belongs_to_the_pair():
    """Whatever share of the pairs a rank has; about p of all entries go, the rest is scaled."""
    task, plain = (LinkPredictionOptions(decoder=MLP(layers=2, dropout=p), negatives=3).make() for p in (0.4, 0.0))
    links = torch.randint(0, 30, (40, 2), generator=torch.Generator().manual_seed(1))
    graph = replace(nasty_graph(), links={"train": links})
    batch, key = torch.arange(40), BatchKey(3, 1, 2)
    for one in (task, plain):
        one.setup(graph)
        one.decoder(8, seed=0, dtype=torch.float64, device=torch.device("cpu"))
    rows = torch.rand(60, 8, dtype=torch.float64)

    def scores(one: LinkPrediction, chosen: torch.Tensor) -> torch.Tensor:
        pairs = one.examples(chosen, batch, key)
        return one.decode(rows[pairs.vertices], pairs)[torch.argsort(pairs.numbers)]

    whole = scores(task, batch)
    shared = torch.cat([scores(task, batch[:13]), scores(task, batch[13:])])
    assert torch.allclose(whole, shared, rtol=1e-12)
    assert not torch.allclose(whole, scores(plain, batch))
    ones = torch.ones(160, 500, dtype=torch.float64)
    dropped = task.examples(batch, batch, key).drop(ones, 0.4, 0)
    assert abs(float((dropped == 0).double().mean()) - 0.4) < 0.01 and float(dropped.max()) == pytest.approx(1 / 0.6)
    other = task.examples(batch, batch, BatchKey(3, 1, 3)).drop(ones, 0.4, 0)
    assert abs(float((dropped == other).double().mean()) - (0.4**2 + 0.6**2)) < 0.02  # independent of another step's
