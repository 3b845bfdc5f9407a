"""Links that a file holds out: its training graph must not give them away, in either direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from gnnexp.datasets.splits.held_out import graph_of_edges
from gnnexp.datasets.splits.opposites import Opposites, edges_between, find_opposites, units
from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph

_HELD = ("valid", "test")


def without_known(graph: Graph, *, reverses: int, remove: bool, why: str, names: Sequence[str] = ()) -> Graph:
    """`graph` without the edges that are held-out links or their reverses, and without such training links.

    An edge is a reverse of a link if `hold_out` would hold out both together. That is, it joins the same two vertices,
    and its relation has the reverses of the link's relation. Without relations, all edges between two vertices are one
    link. A note counts what is found.

    Args:
        graph: a graph in memory with `links` of the file.
        reverses: which edges are reverses (`hold_out`).
        remove: whether such edges are removed. Otherwise the graph stays as it is, and the note says so.
        why: end of the note if they stay.
        names: names of the relations, for the note.

    Raises:
        DataError: no edge would be left.
    """
    held = {name: graph.links[name].numpy() for name in _HELD if name in graph.links and graph.links[name].shape[0]}
    if not held:
        return graph
    links = np.concatenate([*held.values()])
    pairs, edges = (
        np.concatenate(both)
        for both in zip(
            edges_between(graph, links[:, 0], links[:, -1]),
            edges_between(graph, links[:, -1], links[:, 0]),
            strict=True,
        )
    )
    typed = graph.edge_types is not None and links.shape[1] == 3
    if not remove and not edges.size:
        return graph
    opposites = find_opposites(graph, reverses, links) if typed else None
    same = (
        units(_rows(graph, edges, typed=typed), reverses, opposites) == units(links, reverses, opposites)[pairs]
    ).all(axis=1)
    train = graph.links["train"].numpy() if remove and "train" in graph.links else links[:0]
    known = _known(train, links, graph.num_nodes, reverses, opposites)
    if not same.any() and not known.any():
        return graph
    counts = _counts(held, np.unique(pairs[same]))
    note = f"{counts} links are edges of the training graph, or reverses of edges{_relations(opposites, names)}"
    if not remove:
        return replace(graph, notes=(*graph.notes, f"{note}. {why}"))
    return _without(graph, np.unique(edges[same]), known, note)


def _without(graph: Graph, gone: np.ndarray, known: np.ndarray, note: str) -> Graph:
    """`graph` without the edges `gone` and without the training links `known` `[n]` bool; `note` goes on with both.

    Raises:
        DataError: no edge would be left.
    """
    if gone.size == graph.num_edges:
        raise DataError(
            Problem(
                "dataset.held_out_edges",
                "remove",
                f"all {gone.size} edges of the graph are held-out links or their reverses",
                "set dataset.held_out_edges=keep, or give other links",
            )
        )
    kept = np.ones(graph.num_edges, bool)
    kept[gone] = False
    note = f"{note}. gnnexp has removed {gone.size} edges and {int(known.sum())} training links"
    links_left = (
        {**graph.links, "train": graph.links["train"][torch.from_numpy(~known)]} if known.any() else graph.links
    )
    return replace(graph_of_edges(graph, torch.from_numpy(kept)), links=links_left, notes=(*graph.notes, note))


def _rows(graph: Graph, edges: np.ndarray, *, typed: bool) -> np.ndarray:
    """`[m, 2 | 3]` the edges of these numbers, as links."""
    columns = [graph.indices.numpy()[edges], graph.destinations().numpy()[edges]]
    if typed:
        assert graph.edge_types is not None
        columns.insert(1, graph.edge_types.numpy()[edges])
    return np.stack(columns, axis=1).astype(np.int64)


def _known(
    train: np.ndarray, held: np.ndarray, num_nodes: int, reverses: int, opposites: Opposites | None
) -> np.ndarray:
    """`[n]` bool: which training links are held-out links, or their reverses."""
    ends, others = (
        np.minimum(links[:, 0], links[:, -1]) * num_nodes + np.maximum(links[:, 0], links[:, -1])
        for links in (train, held)
    )
    known = np.isin(ends, others)
    near = train[known]  # they join the ends of a held-out link
    _, places = np.unique(units(np.concatenate([near, held]), reverses, opposites), axis=0, return_inverse=True)
    places = places.reshape(-1)  # NumPy 2.0 gives a column
    known[known] = np.isin(places[: len(near)], places[len(near) :])
    return known


def _counts(held: Mapping[str, np.ndarray], found: np.ndarray) -> str:
    """How many links of each split are among the numbers `found`, for the note."""
    said, start = [], 0
    for name, links in held.items():
        stop = start + len(links)
        said.append(f"{int(((found >= start) & (found < stop)).sum())} of the {len(links)} {name}")
        start = stop
    return " and ".join(said)


def _relations(opposites: Opposites | None, names: Sequence[str]) -> str:
    if opposites is None or not len(opposites.pairs):
        return ""
    return f" (relations that are each other's reverses: {opposites.named(names)})"
