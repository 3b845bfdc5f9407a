"""Holds out links of a graph for link prediction. The draw depends on seed and link only, not on order or machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from gnnexp.datasets.splits.split import check_fractions, rank_bounds
from gnnexp.datasets.splits.times import Times, parts_by_time
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, absorb, stream

LinkSplit = Mapping[str, float] | None
# Whether edges have reverses: no (-1); yes, of the same type (0); or yes, of type R + r for type r (R > 0).
NO_REVERSES, SAME_TYPE = -1, 0
_SHARES = ("val", "test")
# Separates the random draw of links from that of vertices.
_LINKS = 1


def check_link_split(link_split: LinkSplit) -> None:
    """Check `dataset.link_split`: shares of validation and test links, which must leave training links.

    Raises:
        ConfigError: names all problems.
    """
    if link_split is None:
        return
    fix = "set dataset.link_split={val:0.05,test:0.1}"
    if set(link_split) != set(_SHARES) or not all(isinstance(share, float | int) for share in link_split.values()):
        raise ConfigError(Problem("dataset.link_split", dict(link_split), "must be the shares val and test", fix))
    check_fractions(**{f"link_split.{name}": share for name, share in link_split.items()})
    if sum(link_split.values()) >= 1:
        raise ConfigError(Problem("dataset.link_split", dict(link_split), "must leave links to train on", fix))


def hold_out(graph: Graph, link_split: LinkSplit, *, seed: int, reverses: int, times: Times | None = None) -> Graph:
    """`graph` without the edges of held-out links. Its `links` have each link once, as `train`, `valid` and `test`.

    A link is an edge together with its reverse and its parallel edges: either all of them are held out, or none. The
    choice depends on seed and link only. If links have times, the newest ones are for the test (`parts_by_time`), and
    those before them are for validation. The numbers of links are the rounded shares. Links are in the order
    of edges.

    Args:
        graph: a graph in memory.
        link_split: shares `val` and `test` of the links; None does not change the graph.
        seed: seed of the draw.
        times: `[E]` time of each edge, the same for a reverse and for parallel edges; None: links are drawn.
        reverses: which edges are reverses. `NO_REVERSES`: none. `SAME_TYPE`: reverses have the same type, and a link's
            head is the end with the lower id. R: the reverse of an edge of type r has type R + r.

    Raises:
        DataError: there are too few links for the shares, or none of the last relation.
    """
    if link_split is None:
        return graph
    if reverses == NO_REVERSES and graph.edge_types is None:
        # The reverse of a held-out pair may be a training link, and would give the answer away.
        raise DataError(Problem("dataset.symmetrize", False, "a pair without a type is one link, in either "
                                "direction", "set dataset.symmetrize=true, or give edges types"))
    types = np.empty(0, np.int32) if graph.edge_types is None else graph.edge_types.numpy()
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    words, stands = _link_words(np.uint64(stream(seed, Purpose.SPLIT, _LINKS)), indptr, indices, types, reverses)
    edges = np.flatnonzero(stands)
    ends = np.cumsum([round(link_split[name] * edges.size) for name in _SHARES])
    if not 0 < ends[1] < edges.size:
        raise DataError(Problem("dataset.link_split", dict(link_split), f"selects none or all of {edges.size} links",
                                "choose other shares, or a larger graph"))
    if reverses > 0 and int(types[edges].max()) + 1 < reverses:
        # Readers of the links count their relations, and treat edges of all further types as reverses.
        raise DataError(Problem("dataset.link_split", dict(link_split), f"relation {reverses - 1}, the last of "
                                f"{reverses}, has no edges", "choose fewer relations, or a larger graph"))
    if times is None:
        val, test = rank_bounds(words[edges], ends)
        parts = np.where(words >= test, 0, np.where(words < val, 1, 2))
        note = f"links held out by gnnexp, seed {seed}: {ends[0]} valid, {ends[1] - ends[0]} test"
    else:
        parts, note = _by_time(times, edges, ends)
    drawn, destinations = parts[edges], graph.destinations().numpy()
    chosen = {name: drawn == number for number, name in enumerate(("train", "valid", "test"))}
    columns = [indices, destinations] if graph.edge_types is None else [indices, types, destinations]
    links = {
        name: torch.from_numpy(np.stack([column[edges[mask]] for column in columns], axis=1).astype(np.int64))
        for name, mask in chosen.items()
    }
    return _without(replace(graph, links=links, notes=(*graph.notes, note)), torch.from_numpy(parts == 0))


def _without(graph: Graph, kept: torch.Tensor) -> Graph:
    """The graph with the edges `kept` `[E]` bool."""
    starts = torch.nn.functional.pad(kept.cumsum(0), (1, 0))
    return replace(
        graph,
        indptr=starts[graph.indptr],
        indices=graph.indices[kept],
        edge_types=None if graph.edge_types is None else graph.edge_types[kept],
        edge_features=None if graph.edge_features is None else graph.edge_features[kept],
        edge_weights=None if graph.edge_weights is None else graph.edge_weights[kept],
    )


def _by_time(times: Times, edges: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, str]:
    """`[E]` part of each edge (0 train, 1 valid, 2 test), and a note. `edges` stand for the links."""
    wanted = (int(edges.size - ends[1]), int(ends[0]), int(ends[1] - ends[0]))
    found = parts_by_time(replace(times, values=times.values[edges]), wanted, "links")
    different, places = np.unique(times.values[edges], return_index=True)
    of_time = found.parts[places]  # equal times are in one part
    return of_time[np.searchsorted(different, times.values)], found.note


@compiled(nogil=True)
def _link_words(
    key: np.uint64, indptr: np.ndarray, indices: np.ndarray, types: np.ndarray, reverses: int
) -> tuple[np.ndarray, np.ndarray]:
    """`[E]` random word of each edge's link, and `[E]` whether the edge represents its link."""
    words, stands = np.empty(indices.size, np.uint64), np.empty(indices.size, np.bool_)
    typed = types.size > 0
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            head, tail, kind = np.int64(indices[edge]), np.int64(dst), np.int64(types[edge]) if typed else np.int64(0)
            back = head > tail if reverses == 0 else 0 < reverses <= kind
            if back:
                head, tail = tail, head
                kind -= reverses
            word = absorb(absorb(key, np.uint64(head)), np.uint64(kind))
            words[edge] = absorb(word, np.uint64(tail))
            again = edge > indptr[dst] and indices[edge] == indices[edge - 1]
            stands[edge] = not back and not (again and (not typed or types[edge] == types[edge - 1]))
    return words, stands
