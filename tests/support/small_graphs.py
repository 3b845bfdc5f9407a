"""Small graphs for tests, built by sorting (not by gnnexp's own builder), and hypothesis strategies of them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows


def csc(num_nodes: int, src: np.ndarray, dst: np.ndarray, types: np.ndarray | None = None) -> Graph:
    """A graph of the edges `src -> dst` in canonical order, without vertex data."""
    kinds = np.zeros(src.size, np.int32) if types is None else types
    order = np.lexsort((kinds, src, dst))
    indptr = np.concatenate([[0], np.bincount(dst, minlength=num_nodes).cumsum()]).astype(np.int64)
    return Graph(
        torch.from_numpy(indptr),
        torch.from_numpy(src[order].astype(np.int32)),
        edge_types=None if types is None else torch.from_numpy(types[order].astype(np.int32)),
    )


def random_graph(num_nodes: int, num_edges: int, seed: int, *, typed: bool = False) -> Graph:
    """A directed multigraph with loops, parallel edges and isolated vertices."""
    draws = np.random.default_rng(seed)
    # Half of the vertices get most of the edges, so that degrees differ and parallel edges are common.
    src, dst = (draws.integers(0, max(1, num_nodes // 2 if draws.random() < 0.5 else num_nodes), num_edges)
                for _ in range(2))
    return csc(num_nodes, src, dst, draws.integers(0, 3, num_edges).astype(np.int32) if typed else None)


def full_graph(num_nodes: int = 40, num_edges: int = 150, seed: int = 0, *, sparse: bool = False,
               multilabel: bool = False) -> Graph:
    """A graph with every kind of data that a graph can have."""
    plain = random_graph(num_nodes, num_edges, seed, typed=True)
    draws = np.random.default_rng(seed + 1)
    dense = torch.from_numpy(draws.random((num_nodes, 6), np.float32))
    order = torch.from_numpy(draws.permutation(num_nodes))
    parts = [torch.sort(part).values for part in (order[:20], order[20:26], order[26:30])]
    single = torch.from_numpy(draws.integers(0, 4, num_nodes))
    single[order[30:]] = -1
    several = torch.from_numpy(draws.integers(0, 2, (num_nodes, 4)).astype(np.float32))
    several[order[30:]] = float("nan")
    return Graph(
        plain.indptr, plain.indices,
        features=sparse_rows(dense) if sparse else dense,
        labels=several if multilabel else single, num_classes=4, splits=Splits(*parts),
        edge_types=plain.edge_types,
        node_types=torch.from_numpy(draws.integers(0, 2, num_nodes).astype(np.int32)),
        edge_features=torch.from_numpy(draws.random((num_edges, 3), np.float32)),
        links={"train": torch.tensor([[0, 1], [2, 3]]), "test_neg": torch.tensor([[1, 1, 2]])},
        name="every/kind of data", notes=("made up", "ümlaut"),
    )


def sparse_rows(dense: torch.Tensor) -> SparseRows:
    """The rows of `dense` with about half of the entries left out."""
    kept = dense > 0.5
    indptr = torch.zeros(dense.shape[0] + 1, dtype=torch.int64)
    torch.cumsum(kept.sum(1), 0, out=indptr[1:])
    return SparseRows(indptr, kept.nonzero()[:, 1].to(torch.int32), dense[kept], dense.shape[1])


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 24, max_edges: int = 80, *, typed: bool = False) -> Graph:
    """Random small multigraphs, empty ones included; if `typed`, some have three types of edges."""
    num_nodes = draw(st.integers(1, max_nodes))
    ids = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=max_edges))
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    kinds = st.lists(st.integers(0, 2), min_size=len(edges), max_size=len(edges))
    types = np.array(draw(kinds), np.int32) if typed and draw(st.booleans()) else None
    return csc(num_nodes, pairs[:, 0], pairs[:, 1], types)


def edge_list(graph: Graph) -> list[tuple[int, int]]:
    """(src, dst) of every edge, in canonical order, in plain Python."""
    ends = graph.indptr.tolist()
    sources = graph.indices.tolist()
    return [(sources[edge], dst) for dst in range(graph.num_nodes) for edge in range(ends[dst], ends[dst + 1])]
