"""Small graphs: one with all special cases, random graphs, and graphs of given edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gnnexp.graph.block import Block
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits


def nasty_graph(
    num_nodes: int = 60,
    num_edges: int = 400,
    num_features: int = 13,
    num_classes: int = 4,
    *,
    simple: bool = False,
    typed: bool = False,
    seed: int = 0,
) -> Graph:
    """A graph with all special cases: directed, parallel edges, self loops, isolated vertices, uneven degrees.

    It is a random multigraph with features, labels and splits. Vertices 0 and 1 are isolated; the last one is a hub.

    Args:
        num_nodes: V, number of vertices.
        num_edges: number of edges, before parallel edges are merged (`simple`).
        num_features: number of feature columns.
        num_classes: number of classes.
        simple: make the graph undirected, without parallel edges and self loops.
        typed: draw types of edges, and parallel edges of one type and of several. Of 6 relations, number 2 has no
            edges and number 5 has one.
        seed: seed of all random draws.
    """
    generator = np.random.default_rng(seed)
    src = generator.integers(2, num_nodes, num_edges)
    dst = generator.integers(2, num_nodes, num_edges)
    dst[: num_edges // 5] = num_nodes - 1
    src[:10], dst[:10] = src[10:20], dst[10:20]
    if simple:
        arrays = build_graph(src, dst, num_nodes, symmetrize=True, self_loops="remove")
    elif typed:
        types = generator.choice([0, 0, 0, 1, 3, 4], num_edges)
        types[:5], types[5:10], types[-1] = types[10:15], types[15:20] == 0, 5
        arrays = build_graph(src, dst, num_nodes, types=types, duplicates="keep")
    else:
        arrays = build_graph(src, dst, num_nodes, duplicates="keep")
    order = torch.from_numpy(generator.permutation(num_nodes))
    half, rest = num_nodes // 2, num_nodes * 3 // 4
    return Graph(
        arrays.indptr,
        arrays.indices,
        edge_types=arrays.types,
        features=torch.from_numpy(generator.normal(size=(num_nodes, num_features)).astype(np.float32)),
        labels=torch.from_numpy(generator.integers(0, num_classes, num_nodes)),
        num_classes=num_classes,
        splits=Splits(*(ids.sort().values for ids in (order[:half], order[half:rest], order[rest:]))),
        name="nasty",
    )


def typed_graph() -> Graph:
    """`nasty_graph` with relations."""
    return nasty_graph(typed=True)


def weighted_graph() -> Graph:
    """`nasty_graph` with edge weights from 0 to 2; those into vertex 5, and a tenth of the others, are 0."""
    graph = nasty_graph()
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(7)) * 2
    weights[::10] = 0
    return replace(graph, edge_weights=weights.masked_fill(graph.destinations() == 5, 0))


def half_without_in_edges() -> Graph:
    """`nasty_graph` without edges into the first half of its vertices: whole chunks of destinations have no edges."""
    graph = nasty_graph()
    kept = graph.destinations() >= graph.num_nodes // 2
    plain = csc(graph.num_nodes, graph.indices[kept].numpy(), graph.destinations()[kept].numpy())
    return replace(graph, indptr=plain.indptr, indices=plain.indices)


def csc(num_nodes: int, src: np.ndarray, dst: np.ndarray, types: np.ndarray | None = None) -> Graph:
    """A graph of the edges `src -> dst` in canonical order, without vertex data. It does not use gnnexp's builder."""
    kinds = np.zeros(src.size, np.int32) if types is None else types
    order = np.lexsort((kinds, src, dst))
    indptr = np.concatenate([[0], np.bincount(dst, minlength=num_nodes).cumsum()]).astype(np.int64)
    return Graph(
        torch.from_numpy(indptr),
        torch.from_numpy(src[order].astype(np.int32)),
        edge_types=None if types is None else torch.from_numpy(types[order].astype(np.int32)),
    )


def random_graph(num_nodes: int, num_edges: int, seed: int, *, typed: bool = False) -> Graph:
    """A directed multigraph with loops, parallel edges and isolated vertices, without vertex data."""
    draws = np.random.default_rng(seed)
    # Half of the vertices may get most of the edges, so that degrees differ and parallel edges are common.
    src, dst = (
        draws.integers(0, max(1, num_nodes // 2 if draws.random() < 0.5 else num_nodes), num_edges) for _ in range(2)
    )
    return csc(num_nodes, src, dst, draws.integers(0, 3, num_edges).astype(np.int32) if typed else None)


def edge_list(graph: Graph) -> list[tuple[int, int]]:
    """(src, dst) of each edge in canonical order, as Python integers."""
    ends = graph.indptr.tolist()
    sources = graph.indices.tolist()
    return [(sources[edge], dst) for dst in range(graph.num_nodes) for edge in range(ends[dst], ends[dst + 1])]


def edges_of(block: Block) -> dict[int, list[int]]:
    """Original ids of each destination's sources in the order of edges, by original id of the destination."""
    ids, indptr = block.src_ids.tolist(), block.indptr.tolist()
    sources = [ids[place] for place in block.sources.tolist()]
    return {ids[d]: sources[indptr[d] : indptr[d + 1]] for d in range(block.num_dst)}
