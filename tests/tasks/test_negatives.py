"""Negatives against the definition of their draws, how they are spread, and what they must depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linked_graphs import linked_graph, linked_graphs
from scipy import stats

from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.kernels.counter import GOLDEN, Purpose, mix, stream
from gnnexp.kernels.samplers.negatives import TRIES
from gnnexp.tasks.negatives import KnownLinks, Negatives

KEY = BatchKey(seed=3, epoch=1, step=4)
CASES = st.builds(
    Negatives,
    st.integers(1, 3),
    st.sampled_from(["uniform", "per_source", "in_batch"]),
    st.sampled_from(["tail", "head", "both"]),
    st.booleans(),
)


def drawn(graph: Graph, plan: Negatives, chosen: np.ndarray, batch: np.ndarray, key: BatchKey = KEY) -> np.ndarray:
    links = graph.links["train"]
    known = KnownLinks.of([links] if plan.avoid else [], graph.num_nodes)
    return np.stack(plan.draw(links.numpy(), chosen, batch, graph.num_nodes, known, key), 1)


def defined(graph: Graph, plan: Negatives, link: int, number: int, batch: list[int]) -> tuple[int, int]:
    """The `number`-th negative of a link, in plain Python."""
    links = graph.links["train"].tolist()
    (head, *relation, tail), words = links[link], stream(KEY.seed, Purpose.NEGATIVE, KEY.epoch, KEY.step, link, number)
    taken = {(h, *kind, t) for h, *kind, t in links}
    taken |= {(t, h) for h, *kind, t in links if not kind}

    def word(counter: int) -> int:
        return mix(words + (counter + 1) * GOLDEN)

    def end(drawn: int, column: int) -> int:
        others = sorted(batch)
        if plan.sampling != "in_batch" or len(others) < 2:
            return drawn * graph.num_nodes >> 64
        others.remove(link)
        return links[others[drawn * len(others) >> 64]][column]

    sides = {"tail": (1,), "head": (0,), "both": ((word(0) >> 63),)}[plan.corrupt]
    pair = [head, tail]
    for attempt in range(TRIES):
        for side in (0, 1) if plan.sampling == "uniform" else sides:
            pair[side] = end(word(2 * attempt + 1 + side), -side)
        if not plan.avoid or (pair[0], *relation, pair[1]) not in taken:
            break
    return pair[0], pair[1]


@given(linked_graphs(), CASES, st.data())
@settings(max_examples=150)
def test_draws_are_those_of_the_definition(graph: Graph, plan: Negatives, data: st.DataObject) -> None:
    count = graph.links["train"].shape[0]
    batch = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    chosen = np.array(batch[: data.draw(st.integers(0, len(batch)))], np.int64)
    expected = [defined(graph, plan, link, number, batch) for link in chosen.tolist() for number in range(plan.count)]
    assert drawn(graph, plan, chosen, np.array(batch, np.int64)).tolist() == [list(pair) for pair in expected]


@pytest.mark.parametrize("sampling", ["uniform", "per_source"])
def test_every_vertex_is_drawn_alike(sampling: str) -> None:
    num_nodes, chosen = 50, np.arange(2000)
    graph = linked_graph(num_nodes, typed=True, sizes=(2000, 0, 0))
    pairs = drawn(graph, Negatives(5, sampling, avoid=False), chosen, chosen)
    for ends in (pairs[:, 0], pairs[:, 1]) if sampling == "uniform" else (pairs[:, 1],):
        assert stats.chisquare(np.bincount(ends, minlength=num_nodes)).pvalue > 1e-3
    if sampling == "uniform":
        both = np.bincount(pairs[:, 0] // 5 * 10 + pairs[:, 1] // 5, minlength=100)
        assert stats.chisquare(both).pvalue > 1e-3  # nor does one end tell of the other
    else:
        assert (pairs[:, 0] == graph.links["train"][:, 0].repeat_interleave(5).numpy()).all()


def test_the_coin_is_fair_and_in_batch_ends_are_those_of_the_batch() -> None:
    batch = np.arange(0, 2000, 2)
    graph = linked_graph(100_000, typed=False, sizes=(2000, 0, 0))
    links = graph.links["train"].numpy()
    pairs = drawn(graph, Negatives(4, "in_batch", "both"), batch, batch)
    own = links[batch].repeat(4, 0)
    changed = pairs != own
    assert changed.any(1).all() and not changed.all(1).any()
    assert abs(int(changed[:, 0].sum()) - 2000) < 4 * 0.5 * 4000**0.5
    for side in (0, 1):
        ends, places = np.unique(links[batch][:, side], return_inverse=True)
        found = pairs[changed[:, side], side]
        assert np.isin(found, ends).all()
        counts = np.bincount(np.searchsorted(ends, found), minlength=ends.size)
        expected = np.bincount(places) * found.size / batch.size
        assert stats.chisquare(counts, expected, ddof=0).pvalue > 1e-3


@pytest.mark.parametrize("word", ["seed", "epoch", "step"])
def test_every_word_of_the_key_changes_the_draws_but_ranks_do_not(word: str) -> None:
    graph, chosen, plan = linked_graph(1000, typed=True), np.arange(30), Negatives(2)
    other = BatchKey(**(vars(KEY) | {word: getattr(KEY, word) + 1}))
    assert (drawn(graph, plan, chosen, chosen) != drawn(graph, plan, chosen, chosen, other)).any(1).mean() > 0.9
    micro = BatchKey(KEY.seed, KEY.epoch, KEY.step, micro=1)
    assert (drawn(graph, plan, chosen, chosen) == drawn(graph, plan, chosen, chosen, micro)).all()


def test_links_are_avoided_and_what_is_full_is_given_up() -> None:
    everyone = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    graph = linked_graph(8, typed=False)
    sparse = Graph(graph.indptr, graph.indices, links={"train": everyone[:16]})
    taken = {frozenset(pair) for pair in everyone[:16].tolist()}
    chosen = np.arange(16)
    # Vertices 0 and 1 are linked to all: only where both ends are drawn can a negative be found.
    for plan, found in ((Negatives(20), True), (Negatives(20, "per_source"), False)):
        left = [frozenset(pair) in taken for pair in drawn(sparse, plan, chosen, chosen).tolist()]
        assert sum(left) < 0.01 * len(left) if found else all(left)
    full = Graph(graph.indptr, graph.indices, links={"train": everyone})
    assert drawn(full, Negatives(2), np.arange(64), np.arange(64)).shape == (128, 2)
