"""Links held out of graphs: each once, with its reverse and its parallels, as a function of seed and link alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.validate import validate_graph
from gnnexp.preparation.artifacts import prepare_graph

SHARES = {"val": 0.1, "test": 0.2}
Edge = tuple[int, ...]


def edges(graph: Graph) -> list[Edge]:
    """`(source, type, destination)`, or without a type."""
    columns = [graph.indices, graph.destinations()]
    if graph.edge_types is not None:
        columns.insert(1, graph.edge_types)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def held(graph: Graph, name: str) -> list[Edge]:
    return [tuple(link) for link in graph.links[name].tolist()]


def random_edges(path: Path, *, typed: bool) -> str:
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 30, (400, 2))
    if typed:
        rows = np.column_stack([rows, generator.integers(0, 3, 400)])
    np.save(path / "edges.npy", np.concatenate([rows, rows[:40]]))
    return str(path / "edges.npy")


def reverse_of(edge: Edge, shift: int) -> Edge:
    *first, last = edge
    types = [kind + (shift if kind < shift else -shift) for kind in first[1:]]
    return (last, *types, first[0])


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("symmetrize", "inverses", "duplicates"),
    [
        (True, False, "merge"),
        (True, True, "merge"),
        (True, True, "keep"),
        (False, False, "keep"),
        (True, False, "keep"),
    ],
)
def test_a_link_goes_with_all_its_edges(
    tmp_path: Path, typed: bool, symmetrize: bool, inverses: bool, duplicates: Any
) -> None:
    inverses = inverses and typed
    options: dict[str, Any] = {
        "path": random_edges(tmp_path, typed=typed),
        "symmetrize": symmetrize,
        "inverse_relations": inverses,
        "duplicates": duplicates,
        "self_loops": "keep",
        "seed": 4,
    }
    if not (typed or symmetrize):  # the reverse of a test link would be a training link, and the pair is the same
        with pytest.raises(DataError, match="a pair without a type is one link"):
            EdgeList(**options, link_split=SHARES).load()
        return
    whole, graph = EdgeList(**options).load(), EdgeList(**options, link_split=SHARES).load()
    assert [one for one in validate_graph(graph, name="g") if one.key != "g: train"] == []
    links = {name: held(graph, name) for name in ("train", "valid", "test")}
    everything = [link for found in links.values() for link in found]
    assert len(set(everything)) == len(everything)
    sizes = [round(0.1 * len(everything)), round(0.2 * len(everything))]
    assert [len(links["valid"]), len(links["test"])] == sizes
    shift = 3 if inverses else 0

    def with_reverses(chosen: list[Edge]) -> set[Edge]:
        return {*chosen, *(reverse_of(link, shift) for link in chosen)} if symmetrize else set(chosen)

    assert with_reverses(everything) == set(edges(whole))
    gone = with_reverses(links["valid"] + links["test"])
    assert edges(graph) == [edge for edge in edges(whole) if edge not in gone]


def test_a_link_is_drawn_by_itself(tmp_path: Path) -> None:
    """In another order of the rows, and with smaller shares, the same links are drawn (first)."""
    path = random_edges(tmp_path, typed=True)
    first = EdgeList(path=path, link_split=SHARES).load()
    np.save(tmp_path / "other.npy", np.load(path)[::-1])
    other = EdgeList(path=str(tmp_path / "other.npy"), link_split=SHARES).load()
    assert all(torch.equal(first.links[name], other.links[name]) for name in first.links)
    fewer = EdgeList(path=path, link_split={"val": 0.05, "test": 0.1}).load()
    assert set(held(fewer, "valid")) < set(held(first, "valid"))
    assert set(held(EdgeList(path=path, link_split=SHARES, seed=1).load(), "test")) != set(held(first, "test"))


def test_every_link_is_as_likely(tmp_path: Path) -> None:
    path, hits = random_edges(tmp_path, typed=False), dict[Edge, int]()
    for seed in range(60):
        for link in held(EdgeList(path=path, link_split={"val": 0.25, "test": 0.25}, seed=seed).load(), "test"):
            hits[link] = hits.get(link, 0) + 1
    counts = np.array(list(hits.values()))
    # Each is binomial(60, 0.25): mean 15; chi-square of n cells has mean n, sd sqrt(2 n).
    chi = ((counts - 15) ** 2 / (15 * 0.75)).sum()
    assert abs(chi - counts.size) < 5 * (2 * counts.size) ** 0.5


@pytest.mark.parametrize(("relations", "inverses"), [(None, True), (5, True), (5, False)])
def test_rmat(tmp_path: Path, relations: int | None, inverses: bool) -> None:
    options: dict[str, Any] = {
        "num_nodes": 300,
        "num_edges": 3000,
        "relations": relations,
        "inverse_relations": inverses,
    }
    whole, dataset = Rmat(**options).load(), Rmat(**options, link_split=SHARES)
    graph = dataset.load()
    links = {name: held(graph, name) for name in ("train", "valid", "test")}
    assert sum(map(len, links.values())) == whole.num_edges // 2
    assert graph.num_edges == 2 * len(links["train"])
    assert set(links["train"]) <= set(edges(graph))
    assert not {*links["valid"], *links["test"]} & set(edges(graph))
    assert torch.equal(graph.splits.train, whole.splits.train)
    stored, _ = prepare_graph(dataset, tmp_path)
    assert all(torch.equal(stored.links[name], graph.links[name]) for name in graph.links)
    assert "links held out by gnnexp, seed 0" in stored.notes[-1]
    assert dataset.key() != Rmat(**options).key()


@pytest.mark.parametrize(
    "shares",
    [
        {"val": 0.1},
        {"val": 0.1, "test": 0.1, "x": 0},
        {"val": -0.1, "test": 0.1},
        {"val": 0.5, "test": 0.5},
        {"val": "a", "test": 0.1},
        {"val": 0.9, "test": 0.2},
    ],
)
def test_wrong_shares(shares: dict[str, Any]) -> None:
    for kind in (Rmat, EdgeList):
        with pytest.raises(ConfigError, match=r"link_split"):
            kind(link_split=shares)


def test_nothing_or_everything_is_no_split(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2]]))
    for shares in ({"val": 0.0, "test": 0.1}, {"val": 0.5, "test": 0.49}):
        with pytest.raises(DataError, match="of 2 links"):
            EdgeList(path=str(tmp_path / "edges.npy"), link_split=shares).load()
    with pytest.raises(DataError, match="relation 999, the last of 1000"):
        Rmat(num_nodes=500, num_edges=1000, relations=1000, link_split=SHARES).load()
    with pytest.raises(ConfigError, match="streamed"):
        EdgeList(link_split=SHARES, streamed=True)
