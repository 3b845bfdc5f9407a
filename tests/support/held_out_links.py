"""What must hold of a graph whose dataset held links out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gnnexp.graph.graph import Graph

SHARES = {"val": 0.1, "test": 0.2}


def codes(graph: Graph, heads: Any, kinds: Any, tails: Any) -> np.ndarray:
    """One number for each (head, type, tail)."""
    columns = (np.asarray(column, np.int64) for column in (heads, kinds, tails))
    head, kind, tail = columns
    return (head * 64 + kind) * graph.num_nodes + tail


def edge_codes(graph: Graph) -> np.ndarray:
    kinds = torch.zeros(graph.num_edges) if graph.edge_types is None else graph.edge_types
    return codes(graph, graph.indices, kinds, graph.destinations())


def link_codes(graph: Graph, links: torch.Tensor, inverses: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of links, and of their reverses: of the same type, or of type R + r."""
    heads, tails = links[:, 0], links[:, -1]
    kinds = links[:, 1] if links.shape[1] == 3 else torch.zeros_like(heads)
    return codes(graph, heads, kinds, tails), codes(graph, tails, kinds + inverses, heads)


def assert_held_out(whole: Graph, graph: Graph, inverses: int = 0, *, both: bool = True) -> None:
    """Links are each edge once; the held-out ones and their reverses, and nothing else, are not in the graph.

    With `both`, every edge of `whole` has its reverse, of the same type or of type R + r (`inverses` = R).
    """
    links = {name: link_codes(graph, graph.links[name], inverses) for name in ("train", "valid", "test")}
    count = sum(ahead.size for ahead, _ in links.values())
    assert np.unique(np.concatenate([ahead for ahead, _ in links.values()])).size == count
    assert [links[name][0].size for name in ("valid", "test")] == [round(0.1 * count), round(0.2 * count)]
    held = np.concatenate([part for name in ("valid", "test") for part in (links[name] if both else links[name][:1])])
    before, after = edge_codes(whole), edge_codes(graph)
    assert np.array_equal(after, before[~np.isin(before, held)])
    assert np.isin(links["train"][0], after).all() and not np.isin(held, after).any()
    everything = np.concatenate([part for ends in links.values() for part in (ends if both else ends[:1])])
    assert np.array_equal(np.unique(everything), np.unique(before))
    assert torch.equal(graph.splits.train, whole.splits.train)
    said = [note for note in graph.notes if note.startswith("links held out by gnnexp")]
    assert said and f"{links['valid'][0].size} valid, {links['test'][0].size} test" in said[0]
