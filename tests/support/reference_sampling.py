"""Sampling spelt out slowly in plain Python from its documented definition, and graphs to try it on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st

from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.counter import GOLDEN, Purpose, mix, stream


def floyd(vertex_key: int, degree: int, fanout: int) -> list[int]:
    """Offsets of the edges that a vertex takes, in the order of the draws."""
    if fanout < 0 or degree <= fanout:
        return list(range(degree))
    chosen: list[int] = []
    for j in range(fanout):
        bound = degree - fanout + j + 1
        drawn = (mix(vertex_key + (j + 1) * GOLDEN) * bound) >> 64
        chosen.append(bound - 1 if drawn in chosen else drawn)
    return chosen


def vertex_key(hop_key: int, vertex: int) -> int:
    return mix(hop_key ^ mix(vertex + GOLDEN))


def reference_blocks(
    graph: Graph, seeds: Sequence[int], fanouts: Sequence[int], key: BatchKey, needs: BlockNeeds
) -> list[dict[str, list[int]]]:
    """Blocks as plain lists, input side first."""
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    vertices = list(seeds)
    place = {vertex: i for i, vertex in enumerate(vertices)}
    blocks: list[dict[str, list[int]]] = []
    for hop, fanout in enumerate(fanouts):
        hop_key = stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop)
        starts, sources, edges = [0], [], []
        for vertex in list(vertices):
            start, degree = indptr[vertex], indptr[vertex + 1] - indptr[vertex]
            taken = [start + offset for offset in floyd(vertex_key(hop_key, vertex), degree, fanout)]
            found = [indices[edge] for edge in taken]
            if needs.self_loops:
                taken, found = [*taken, -1], [*found, vertex]
            for source in found:
                if source not in place:
                    place[source] = len(vertices)
                    vertices.append(source)
            sources += [place[source] for source in found]
            edges += taken
            starts.append(len(sources))
        blocks.append({"indptr": starts, "sources": sources, "edges": edges, "src_ids": list(vertices)})
    return blocks[::-1]


def graph_of(degrees: Sequence[int], num_nodes: int, seed: int, wide: bool = False, types: int = 0) -> Graph:
    """A multigraph with these in-degrees, sources (loops and parallel edges included) drawn by `seed`."""
    generator = np.random.default_rng(seed)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    kinds = generator.integers(0, max(types, 1), indptr[-1])
    sources = generator.integers(0, num_nodes, indptr[-1])
    for v in range(num_nodes):
        part = slice(indptr[v], indptr[v + 1])
        order = np.lexsort((kinds[part], sources[part]))
        sources[part], kinds[part] = sources[part][order], kinds[part][order]
    return Graph(
        torch.from_numpy(indptr),
        torch.from_numpy(sources.astype(np.int64 if wide else np.int32)),
        edge_types=torch.from_numpy(kinds.astype(np.int32)) if types else None,
    )


@st.composite
def graphs(draw: st.DrawFn, types: int = 0) -> Graph:
    """Small multigraphs: isolated vertices, hubs, self loops, parallel edges, int32 and int64 ids."""
    num_nodes = draw(st.integers(1, 40))
    degree = st.one_of(st.just(0), st.integers(0, 6), st.integers(0, 60))
    degrees = draw(st.lists(degree, min_size=num_nodes, max_size=num_nodes))
    return graph_of(degrees, num_nodes, draw(st.integers(0, 10_000)), draw(st.booleans()), types)
