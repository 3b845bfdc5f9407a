import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.looking.facts import facts_of_graph
from gnnexp.errors import DataError
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([1.0, 2.0])), min_size=1, max_size=20))
def test_weights_that_differ_are_counted(rows: list[tuple[int, int, float]]) -> None:
    ends, weights = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows], np.float32)
    arrays = build_graph(ends[:, 0], ends[:, 1], 5, duplicates="keep", weights=weights)
    found = facts_of_graph(Graph(arrays.indptr, arrays.indices, edge_weights=arrays.weights))
    by_ends: dict[tuple[int, int], list[float]] = {}
    for u, v, weight in rows:
        by_ends.setdefault((u, v), []).append(weight)
    once = {pair: one[0] for pair, one in by_ends.items() if len(one) == 1 and pair[0] != pair[1]}
    assert found.different_weights == sum(len(set(one)) > 1 for one in by_ends.values())
    opposite = sum(u < v and once.get((v, u), weight) != weight for (u, v), weight in once.items())
    assert found.opposite_weights == opposite


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_facts_are_those_of_networkx(num_nodes: int, pairs: list[tuple[int, int]]) -> None:
    pairs = [(first % num_nodes, second % num_nodes) for first, second in pairs]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    arrays = build_graph(ends[:, 0], ends[:, 1], num_nodes, duplicates="keep")
    found = facts_of_graph(Graph(arrays.indptr, arrays.indices))
    other = nx.MultiDiGraph()
    other.add_nodes_from(range(num_nodes))
    other.add_edges_from(pairs)
    degree = [number for _, number in other.degree()]
    assert (found.vertices, found.edges) == (num_nodes, len(pairs))
    assert found.self_loops == nx.number_of_selfloops(other)
    assert found.duplicates == len(pairs) - len(set(pairs))
    assert found.isolated == sum(number == 0 for number in degree)
    assert found.degree["max"] == max(degree) and found.degree["mean"] == np.mean(degree)
    assert found.components == nx.number_weakly_connected_components(other)
    largest = max(len(part) for part in nx.weakly_connected_components(other))
    assert found.largest_component == largest / num_nodes
    between = {pair for pair in pairs if pair[0] != pair[1]}
    assert found.reciprocal == (np.mean([(b, a) in between for a, b in between]) if between else 0)


@pytest.mark.parametrize(("classes", "said"), [(3, "facts of 4 edges"), (1000, "1000 classes")])
def test_facts_that_do_not_fit_in_memory_are_refused(classes: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 1, 2, 3])
    arrays = build_graph(ends, np.roll(ends, 1), 4)
    graph = Graph(arrays.indptr, arrays.indices, labels=torch.tensor([0, 1, classes - 1, 0]), num_classes=classes)
    assert len(facts_of_graph(graph).classes) == classes
    monkeypatch.setattr("gnnexp.datasets.base.available_memory", lambda: 100 if classes == 3 else 1000)
    with pytest.raises(DataError, match=said):
        facts_of_graph(graph)
