"""What a pass over a graph's edges holds besides the graph."""

from __future__ import annotations

import numpy as np

from gnnexp.graph.stream import GraphStream
from gnnexp.testing.graphs import nasty_graph


def test_a_pass_holds_the_destinations_of_one_chunk() -> None:
    """However many chunks there are: a partitioner's memory is not to grow with the edges."""
    graph = nasty_graph()
    first, *others = [chunk.destinations for chunk in GraphStream(graph, chunk_edges=7).chunks()]
    assert len(others) > 2 and all(np.shares_memory(first, destinations) for destinations in others)


def test_a_shuffled_pass_holds_nothing_that_it_did_not_hold_before() -> None:
    stream = GraphStream(nasty_graph(), "shuffled", chunk_edges=7)
    passes = [list(stream.chunks()) for _ in range(2)]
    for earlier, later in zip(*passes, strict=True):
        assert np.shares_memory(earlier.sources, later.sources)
        assert np.shares_memory(earlier.destinations, later.destinations)
