"""Holds out links of a graph for link prediction. The draw depends on seed and link only, not on order or machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from gnnexp.datasets.splits.opposites import NO_REVERSES, SAME_TYPE, Opposites, edges_between, find_opposites
from gnnexp.datasets.splits.split import bounds_of_ranks, check_fractions
from gnnexp.datasets.splits.times import Times, parts_by_time
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, absorb, stream

LinkSplit = Mapping[str, float] | None
__all__ = [
    "NO_REVERSES",
    "SAME_TYPE",
    "LinkSplit",
    "check_link_split",
    "graph_of_edges",
    "hold_out",
    "hold_out_by_time",
]
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


def hold_out(graph: Graph, link_split: LinkSplit, *, seed: int, reverses: int, names: Sequence[str] = ()) -> Graph:
    """`graph` without the edges of held-out links. Its `links` have each link once, as `train`, `valid` and `test`.

    A link is an edge together with its reverse and its parallel edges: either all of them are held out, or none. If a
    relation has the reverses of another one (`find_opposites`), all links of both between two vertices count as one:
    all of them are held out, or none. The same holds for a relation that has both directions of its edges. A note says
    which relations these are.

    The choice depends on seed and link only. The numbers of links are the rounded shares. Links are in the order of
    edges.

    Args:
        graph: a graph in memory.
        link_split: shares `val` and `test` of the links; None does not change the graph.
        seed: seed of the draw.
        reverses: which edges are reverses. `NO_REVERSES`: none. `SAME_TYPE`: reverses have the same type, and a link's
            head is the end with the lower id. R: the reverse of an edge of type r has type R + r.
        names: names of the relations, for notes; without them, relations have their numbers.

    Raises:
        DataError: there are too few links for the shares, or none of the last relation.
    """
    return graph if link_split is None else _hold_out(graph, link_split, None, seed, reverses, names)[0]


def hold_out_by_time(
    graph: Graph, link_split: Mapping[str, float], times: Times, *, seed: int, reverses: int, names: Sequence[str] = ()
) -> tuple[Graph, Times]:
    """As `hold_out`; but the newest links are for the test (`parts_by_time`), and those before them for validation.

    If relations are held out together, the earliest edge of two vertices decides. Later edges, which are not older than
    the held-out links, are then neither in the graph nor training links.

    Args:
        graph: a graph in memory.
        link_split: shares `val` and `test` of the links.
        times: `[E]` time of each edge, the same for a reverse and for parallel edges.
        seed: seed of the order in which links of several relations are met.
        reverses: as in `hold_out`.
        names: as in `hold_out`.

    Returns:
        The graph, and the time from which on links are held out, as `[1]` times.

    Raises:
        DataError: as `hold_out`.
    """
    held_out, begins = _hold_out(graph, link_split, times, seed, reverses, names)
    assert begins is not None, "links with times are divided by time"
    return held_out, begins


def _hold_out(
    graph: Graph, link_split: Mapping[str, float], times: Times | None, seed: int, reverses: int, names: Sequence[str]
) -> tuple[Graph, Times | None]:
    """See `hold_out_by_time`; without times, links are drawn."""
    if reverses == NO_REVERSES and graph.edge_types is None:
        # The reverse of a held-out pair may be a training link, and would give the answer away.
        raise DataError(
            Problem(
                "dataset.symmetrize",
                False,
                "a pair without a type is one link, in either direction",
                "set dataset.symmetrize=true, or give edges types",
            )
        )
    opposites = None if graph.edge_types is None else find_opposites(graph, reverses)
    words, stands = _words(graph, seed, reverses, opposites)
    edges = np.flatnonzero(stands)
    # One edge for each draw.
    drawn = edges if not _has_pairs(opposites) else edges[np.unique(words[edges], return_index=True)[1]]
    ends = np.cumsum([round(link_split[name] * drawn.size) for name in _SHARES])
    _check_links(graph, link_split, edges, reverses, drawn.size, int(ends[1]))
    begins, notes = None, list[str]()
    if times is None:
        val, test = bounds_of_ranks(words[drawn], ends)
        parts = np.where(words >= test, 0, np.where(words < val, 1, 2))
    else:
        parts, begins, notes = _by_time(times, _oldest(times, words) if _has_pairs(opposites) else times, drawn, ends)
    links = _links(graph, edges, parts[edges])
    if times is None:
        notes.append(f"links held out by gnnexp, seed {seed}: {len(links['valid'])} valid, {len(links['test'])} test")
    train_graph = graph_of_edges(replace(graph, links=links), torch.from_numpy(parts == 0))
    if opposites is not None:
        notes += _said(train_graph, opposites, reverses, names)
    return replace(train_graph, notes=(*graph.notes, *notes)), begins


def _check_links(
    graph: Graph, link_split: Mapping[str, float], edges: np.ndarray, reverses: int, count: int, held: int
) -> None:
    """There must be links for training and to hold out, `held` of `count`, and links of the last relation."""
    if not 0 < held < count:
        raise DataError(
            Problem(
                "dataset.link_split",
                dict(link_split),
                f"selects none or all of {count} links",
                "choose other shares, or a larger graph",
            )
        )
    if reverses > 0 and int(_types(graph)[edges].max()) + 1 < reverses:
        # Readers of the links count their relations, and treat edges of all further types as reverses.
        raise DataError(
            Problem(
                "dataset.link_split",
                dict(link_split),
                f"relation {reverses - 1}, the last of {reverses}, has no edges",
                "choose fewer relations, or a larger graph",
            )
        )


def graph_of_edges(graph: Graph, kept: torch.Tensor) -> Graph:
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


def _types(graph: Graph) -> np.ndarray:
    return np.empty(0, np.int32) if graph.edge_types is None else graph.edge_types.numpy()


def _has_pairs(opposites: Opposites | None) -> bool:
    return opposites is not None and len(opposites.pairs) > 0


def _words(graph: Graph, seed: int, reverses: int, opposites: Opposites | None) -> tuple[np.ndarray, np.ndarray]:
    """See `_link_words`."""
    groups = opposites.groups if opposites is not None and _has_pairs(opposites) else np.empty(0, np.int64)
    words, stands = _link_words(
        np.uint64(stream(seed, Purpose.SPLIT, _LINKS)),
        graph.indptr.numpy(),
        graph.indices.numpy(),
        _types(graph),
        reverses,
        groups,
    )
    return words, stands


def _links(graph: Graph, edges: np.ndarray, parts: np.ndarray) -> dict[str, torch.Tensor]:
    """The links of the numbers `edges` `[n]`, by part `[n]`."""
    columns = [graph.indices.numpy(), graph.destinations().numpy()]
    if graph.edge_types is not None:
        columns.insert(1, _types(graph))
    return {
        name: torch.from_numpy(
            np.stack([column[edges[parts == number]] for column in columns], axis=1).astype(np.int64)
        )
        for number, name in enumerate(("train", "valid", "test"))
    }


def _said(graph: Graph, opposites: Opposites, reverses: int, names: Sequence[str]) -> list[str]:
    """Notes: which relations are held out together, and which held-out links still have an opposite edge."""
    held = {name: graph.links[name].numpy() for name in ("valid", "test")}
    notes = []
    if _has_pairs(opposites):
        counts = [f"{int((opposites.groups[links[:, 1]] >= 0).sum())} {name}" for name, links in held.items()]
        notes.append(
            f"relations that are each other's reverses: {opposites.named(names)}. Their links between the "
            f"same two vertices are held out together: {', '.join(counts)}"
        )
    links = np.concatenate([*held.values()])
    links = links[links[:, 0] != links[:, 2]]
    pairs, edges = edges_between(graph, links[:, 2], links[:, 0])
    count = np.unique(pairs[(_types(graph)[edges] < reverses) | (reverses <= 0)]).size
    if count:
        notes.append(
            f"{count} held-out links have an edge in the opposite direction, of a relation that is not their "
            "reverse: it stays"
        )
    return notes


def _oldest(times: Times, words: np.ndarray) -> Times:
    """Times `[E]` of what is held out together: the earliest of all edges with the same word `[E]`."""
    _, places = np.unique(words, return_inverse=True)
    earliest = np.full(int(places.max(initial=-1)) + 1, times.values.max(initial=0), times.values.dtype)
    np.minimum.at(earliest, places, times.values)
    return replace(times, values=earliest[places])


def _by_time(own: Times, times: Times, edges: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, Times, list[str]]:
    """`[E]` part of each edge (0 train, 1 valid, 2 test, 3 none), when the others begin, and notes.

    `edges` stand for the links. `own` are the times of edges, `times` those of what is held out together.
    """
    wanted = (int(edges.size - ends[1]), int(ends[0]), int(ends[1] - ends[0]))
    by_time = parts_by_time(replace(times, values=times.values[edges]), wanted, "links")
    different, places = np.unique(times.values[edges], return_index=True)
    of_time = by_time.parts[places]  # equal times are in one part
    begins = replace(own, values=different[of_time > 0][:1])
    parts = of_time[np.searchsorted(different, times.values)]
    late = (parts == 0) & (own.values >= begins.values[0])
    notes = [f"{int(late.sum())} edges of training links are left out: they are not older than held-out links"]
    return np.where(late, 3, parts), begins, [by_time.note, *(notes if late.any() else [])]


@compiled(nogil=True)
def _link_words(
    key: np.uint64, indptr: np.ndarray, indices: np.ndarray, types: np.ndarray, reverses: int, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`[E]` random word of each edge's link, and `[E]` whether the edge represents its link.

    Links of a group of relations between the same two vertices have the same word (`units`).
    """
    words, stands = np.empty(indices.size, np.uint64), np.empty(indices.size, np.bool_)
    typed = types.size > 0
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            head, tail, kind = np.int64(indices[edge]), np.int64(dst), np.int64(types[edge]) if typed else np.int64(0)
            back = head > tail if reverses == 0 else 0 < reverses <= kind
            if back:
                head, tail = tail, head
                kind -= reverses
            if groups.size > 0 and groups[kind] >= 0:
                kind = groups[kind]
                if head > tail:
                    head, tail = tail, head
            word = absorb(absorb(key, np.uint64(head)), np.uint64(kind))
            words[edge] = absorb(word, np.uint64(tail))
            again = edge > indptr[dst] and indices[edge] == indices[edge - 1]
            stands[edge] = not back and not (again and (not typed or types[edge] == types[edge - 1]))
    return words, stands
