import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.looking.facts import facts_of_graph
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph


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
