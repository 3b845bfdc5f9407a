"""Strategies of Hypothesis that generate graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import csc


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 24, max_edges: int = 80, *, typed: bool = False) -> Graph:
    """Small random multigraphs, also without edges. If `typed`, some have edges of three types."""
    num_nodes = draw(st.integers(1, max_nodes))
    ids = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=max_edges))
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    kinds = st.lists(st.integers(0, 2), min_size=len(edges), max_size=len(edges))
    types = np.array(draw(kinds), np.int32) if typed and draw(st.booleans()) else None
    return csc(num_nodes, pairs[:, 0], pairs[:, 1], types)
