"""The task: examples whoever has them, losses by their formulas, OGB's Hits@K, and what is refused."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linked_graphs import linked_graph, linked_graphs, of_links
from torch import Tensor

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import TaskOptions
from gnnexp.tasks.decoders import MLP, Decoder, DistMult, Dot
from gnnexp.tasks.link_prediction import LinkPrediction, LinkPredictionOptions
from gnnexp.tasks.node_classification import NodeClassificationOptions
from gnnexp.tasks.pairs import Pairs

KEY, DIM = BatchKey(seed=1, epoch=2, step=3), 4


def task_of(graph: Graph, **options: object) -> LinkPrediction:
    task = LinkPredictionOptions(**options).make()
    task.setup(graph)
    task.decoder(DIM, seed=0, dtype=torch.float64, device=torch.device("cpu"))
    return task


def listed(pairs: Pairs) -> list[tuple[object, ...]]:
    """Original ids, relation, whether it is a link, and its weight."""
    kinds = [0] * pairs.head.numel() if pairs.relation is None else pairs.relation.tolist()
    return list(
        zip(
            pairs.vertices[pairs.head].tolist(),
            kinds,
            pairs.vertices[pairs.tail].tolist(),
            pairs.positive.tolist(),
            pairs.weights.tolist(),
            strict=True,
        )
    )


def shares_of(batch: Tensor, owner: list[int]) -> list[Tensor]:
    return [batch[torch.tensor(owner, dtype=torch.int64) == rank] for rank in range(3)]


@given(linked_graphs(), st.sampled_from(["uniform", "per_source", "in_batch"]), st.integers(1, 3), st.data())
@settings(max_examples=60)
def test_shares_have_the_batchs_pairs_however_it_is_cut(
    graph: Graph, sampling: str, negatives: int, data: st.DataObject
) -> None:
    task = task_of(graph, sampling=sampling, negatives=negatives)
    everyone = data.draw(st.permutations(task.targets().tolist()))
    batch = torch.tensor(everyone[: data.draw(st.integers(1, len(everyone)))])
    owner = data.draw(st.lists(st.integers(0, 2), min_size=len(batch), max_size=len(batch)))
    whole = task.examples(batch, batch, KEY)
    shares = [task.examples(share, batch, KEY) for share in shares_of(batch, owner)]
    assert Counter(listed(whole)) == Counter(pair for share in shares for pair in listed(share))
    for share in (whole, *shares):
        assert share.vertices.dtype == torch.int64
        used = torch.cat((share.head, share.tail)).unique()
        assert share.vertices.equal(share.vertices.unique()) and used.equal(torch.arange(share.vertices.numel()))
    links = task.links(batch)
    assert [pair[0] for pair in listed(whole)][: len(batch)] == links[:, 0].tolist()
    assert [pair[2] for pair in listed(whole)][: len(batch)] == links[:, -1].tolist()


@given(linked_graphs())
@settings(max_examples=20)
def test_a_link_is_at_home_where_its_head_is(graph: Graph) -> None:
    task = task_of(graph)
    assert graph.links is not None
    heads = graph.links["train"][:, 0]
    assert torch.equal(task.homes(task.targets()), torch.as_tensor(heads))
    assert torch.equal(task.homes(task.targets().flip(0)), torch.as_tensor(heads).flip(0))


def test_draws_that_are_keyed_by_position_would_be_found_out() -> None:
    """The control of the test above: the same task, whose draws take a link's place in its share for its number."""

    class ByPosition(LinkPrediction):
        def examples(self, chosen: Tensor, batch: Tensor, key: BatchKey) -> Pairs:
            return super().examples(torch.arange(chosen.numel()), batch, key)

    batch, owner = torch.arange(30), [0, 1, 2] * 10
    for kind, same in ((LinkPrediction, True), (ByPosition, False)):
        task = kind(LinkPredictionOptions())
        task.setup(linked_graph(40, typed=True))
        whole = Counter(pair[:3] for pair in listed(task.examples(batch, batch, KEY)) if not pair[3])
        parts = [task.examples(share, batch, KEY) for share in shares_of(batch, owner)]
        assert (whole == Counter(pair[:3] for part in parts for pair in listed(part) if not pair[3])) == same


def naive_loss(task: LinkPrediction, links: list[list[int]], outputs: Tensor, pairs: Pairs) -> Tensor:
    """By the definitions of docs/links.md, link by link."""
    k, total, found = task.options.plan.count, torch.zeros((), dtype=torch.float64), listed(pairs)
    for number in range(len(links)):
        own = [found[number], *found[len(links) + number * k : len(links) + (number + 1) * k]]
        losses, squares = [], []
        for head, kind, tail, positive, _ in own:
            relation = torch.tensor([kind]) if task.num_relations else None
            score = task.head.score(outputs[[head]], relation, outputs[[tail]])[0]
            losses.append(-torch.log(torch.sigmoid(score if positive else -score)))
            squares.append(outputs[head].square().mean() + outputs[tail].square().mean())
            parameters = task.head.relations()
            if parameters is not None:
                squares[-1] = squares[-1] + parameters[kind if task.num_relations else 0].square().mean()
        total = total + (sum(losses) / (1 + k) if task.options.weighting == "each" else losses[0] + sum(losses[1:]) / k)
        total = total + task.options.l2 * sum(squares) / (1 + k)
    return total


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("weighting", "l2", "decoder"),
    [
        ("each", 0.0, DistMult),
        ("each", 0.3, DistMult),
        ("balanced", 0.3, DistMult),
        ("balanced", 0.0, MLP),
        ("balanced", 0.1, Dot),
    ],
)
def test_losses_and_gradients_add_up_over_shares(
    typed: bool, weighting: str, l2: float, decoder: type[Decoder]
) -> None:
    graph = linked_graph(15, typed)
    task = task_of(graph, negatives=3, weighting=weighting, l2=l2, decoder=decoder(), sampling="per_source")
    outputs = torch.randn(15, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    batch = torch.arange(0, 30, 2)
    wanted = [outputs, *task.head.parameters()]

    def loss(share: Tensor) -> Tensor:
        pairs = task.examples(share, batch, KEY)
        return task.loss_sum(task.decode(outputs[pairs.vertices], pairs), pairs)

    expected = naive_loss(task, task.links(batch).tolist(), outputs, task.examples(batch, batch, KEY))
    gradients = torch.autograd.grad(expected, wanted)
    for shares in ([batch], [batch[:0], batch[:4], batch[4:]], list(batch.split(1))):
        total = sum(loss(share) for share in shares)
        assert torch.allclose(total, expected, rtol=1e-12)
        for found, wanted_one in zip(torch.autograd.grad(total, wanted), gradients, strict=True):
            assert torch.allclose(found, wanted_one, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("typed", [False, True])
def test_a_rank_without_links_has_a_zero_loss_with_gradients(typed: bool) -> None:
    task = task_of(linked_graph(15, typed), l2=0.1)
    pairs = task.examples(torch.arange(0), torch.arange(5), KEY)
    outputs = torch.empty(0, DIM, dtype=torch.float64, requires_grad=True)
    loss = task.loss_sum(task.decode(outputs, pairs), pairs)
    loss.backward()
    assert loss.item() == 0 and pairs.count == 0 and pairs.vertices.numel() == 0
    assert outputs.grad is not None and all((p.grad == 0).all() for p in task.head.parameters())


def ogb_hits(positive: Tensor, negative: Tensor, k: int) -> float:
    """As `ogb.linkproppred.Evaluator` defines it."""
    if len(negative) < k:
        return 1.0
    return float((positive > torch.topk(negative, k).values[-1]).sum()) / len(positive)


@pytest.mark.parametrize(("num_links", "num_negatives"), [(30, 47), (47, 30), (200, 1), (1, 200), (3, 400)])
def test_hits_over_fixed_negatives_are_ogbs_however_links_are_shared(num_links: int, num_negatives: int) -> None:
    draws = torch.Generator().manual_seed(0)
    sizes = {"train": 20, "valid": num_links, "valid_neg": num_negatives, "test": 5, "test_neg": 5}
    graph = of_links(25, {name: torch.randint(25, (size, 2), generator=draws) for name, size in sizes.items()})
    task = task_of(graph, decoder=Dot(), metric="hits@7")
    outputs = torch.randint(-2, 3, (25, DIM), generator=draws).double()  # many ties
    held = task.held_out(graph)
    assert {name: numbers.tolist() for name, numbers in held.items()} == {
        "val": list(range(num_links)),
        "test": list(range(5)),
    }
    positive, negative = (
        (outputs[links[:, 0]] * outputs[links[:, 1]]).sum(1)
        for links in (graph.links["valid"], graph.links["valid_neg"])
    )
    for budget in (500, 1 << 20):
        found = [
            piece
            for share in (held["val"][::3], held["val"][1::3], held["val"][2::3])
            for piece in task.score_pairs("val", outputs, share, budget)
        ]
        joined = np.sort(np.concatenate([piece["negative"] for piece in found]))
        assert joined.tolist() == sorted(negative.tolist())
        assert task.metrics(found) == {
            f"hits@{k}": ogb_hits(positive, negative, k) for k in (7, 10, 20, 50, 100) if k <= num_negatives
        }, "not 1 for any model"
    # What a rank without links gives adds nothing.
    assert all(
        array.size == 0 for piece in task.score_pairs("val", outputs, held["val"][:0], 500) for array in piece.values()
    )
    assert task.primary_metric == "hits@7" and task_of(graph).primary_metric == "hits@20"


def test_metrics_of_ranks() -> None:
    task = task_of(linked_graph(15, typed=True), metric="hits@2")
    found = task.metrics([{"rank": np.array([1.0, 4.0])}, {"rank": np.array([2.5, 10.0, 2.0])}])
    assert (
        next(iter(found)) == "hits@2"
        and next(iter(task_of(linked_graph(15, typed=True)).metrics([{"rank": np.ones(1)}]))) == "mrr"
    )
    assert found["mrr"] == pytest.approx((1 + 1 / 4 + 1 / 2.5 + 1 / 10 + 1 / 2) / 5)
    assert {name: value for name, value in found.items() if name != "mrr"} == {
        "hits@1": 0.2,
        "hits@2": 0.4,
        "hits@3": 0.6,
        "hits@10": 1.0,
    }
    assert task.metrics([]) == {} and task_of(linked_graph(15, typed=True)).primary_metric == "mrr"


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        LinkPredictionOptions(dim=0, negatives=0, sampling="uniform", corrupt="head", l2=-1.0, metric="hits@0").make()
    assert {problem.key for problem in error.value.problems} == {
        "task.dim",
        "task.negatives",
        "task.corrupt",
        "task.l2",
        "task.metric",
    }
    node = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}
    wrong = {"sampling": "all", "corrupt": "none", "weighting": "none", "decoder": {"_target_": "torch.nn.Linear"}}
    with pytest.raises(ConfigError) as error:
        build({**node, **wrong}, TaskOptions, "task")
    assert {problem.key for problem in error.value.problems} == {
        "task.sampling",
        "task.corrupt",
        "task.weighting",
        "task.decoder._target_",
    }


def test_data_that_does_not_fit_is_refused_with_the_fix() -> None:
    nothing = of_links(5, {})
    (problem,) = LinkPredictionOptions().check_data(nothing)
    assert "ogbl-ddi" in problem.fix and "link_split" in problem.fix
    (problem,) = LinkPredictionOptions().check_data(of_links(5, {"valid": torch.tensor([[0, 1]])}))
    assert "none to train on" in problem.allowed
    typed, plain = linked_graph(5, typed=True), linked_graph(5, typed=False)
    for decoder, graph, keys in (
        (Dot(), typed, ["task.decoder"]),
        (MLP(), typed, ["task.decoder"]),
        (DistMult(), typed, []),
        (DistMult(), plain, []),
        (Dot(), plain, []),
    ):
        assert [problem.key for problem in LinkPredictionOptions(decoder=decoder).check_data(graph)] == keys
    fixed = of_links(5, {**plain.links, "valid_neg": torch.tensor([[0, 1]]), "test_neg": torch.tensor([[0, 1]])})
    assert [problem.key for problem in LinkPredictionOptions(metric="mrr").check_data(fixed)] == ["task.metric"]
    assert (
        LinkPredictionOptions(metric="hits@1").check_data(fixed) == []
        and LinkPredictionOptions(metric="mrr").check_data(plain) == []
    )
    for metric in ("auto", "hits@2"):  # snap-stanford/ogb#105: with fewer than K negatives, any model has 1
        (problem,) = LinkPredictionOptions(metric=metric).check_data(fixed)
        assert "1 fixed negatives" in problem.allowed and "task.metric=hits@1" in problem.fix
    for name in ("valid_neg", "test_neg"):
        (problem,) = LinkPredictionOptions(metric="hits@1").check_data(
            of_links(5, {**plain.links, name: torch.tensor([[0, 1]])})
        )
        assert problem.key == "dataset" and "but not of the other split" in problem.allowed
    for other in ("valid", "test", "test_neg"):
        links = {**fixed.links, other: torch.tensor([[0, 0, 1]])}
        (problem,) = LinkPredictionOptions(metric="hits@1").check_data(of_links(5, links))
        assert "different numbers of columns" in problem.allowed and f"3 ({other})" in problem.allowed
    assert (
        LinkPredictionOptions().num_outputs(plain, 64) == 64
        and LinkPredictionOptions(dim=8).num_outputs(plain, 64) == 8
    )


def test_a_graph_of_links_tells_who_wants_to_classify_its_vertices() -> None:
    (problem,) = NodeClassificationOptions().check_data(linked_graph(5, typed=True))
    assert "task=link_prediction" in problem.fix


@pytest.mark.parametrize(("negatives", "batch", "ranks"), [(1, 64, 2), (5, 64, 2), (5, 0, 3)])
def test_pairs_of_a_step_are_links_and_their_negatives(negatives: int, batch: int, ranks: int) -> None:
    train: Any = SimpleNamespace(batch_size=batch, dtype="float32")
    setting: Any = SimpleNamespace(train=train, hardware=SimpleNamespace(nodes=1, workers=ranks, device="cpu"))
    facts: Any = SimpleNamespace(links=(("train", 100), ("valid", 7)), num_nodes=50, num_classes=DIM)
    decoding, _ = LinkPredictionOptions(negatives=negatives).needs(setting, facts)
    pairs = -(-(batch or 100) // ranks) * (1 + negatives)
    assert decoding.what == f"decoding {pairs:,} pairs"
    floats = pairs * Dot().floats_per_pair(DIM, "cpu") + 2 * min(2 * pairs, 50) * DIM
    assert decoding.num_bytes == 4 * floats
