"""Small graphs with links, and hypothesis strategies of them: self links, repeated ones, pairs both ways."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph

RELATIONS = 3


def linked_graph(num_nodes: int, typed: bool, seed: int = 0, sizes: tuple[int, int, int] = (30, 9, 12)) -> Graph:
    """A graph without edges whose links are drawn."""
    draws = np.random.default_rng(seed)
    links = {
        name: torch.from_numpy(with_relations(draws.integers(0, num_nodes, (size, 2)), typed, draws))
        for name, size in zip(("train", "valid", "test"), sizes, strict=True)
    }
    return of_links(num_nodes, links)


def with_relations(pairs: np.ndarray, typed: bool, draws: np.random.Generator) -> np.ndarray:
    """`pairs` `[n, 2]` with a relation between them where they are `typed`."""
    return np.insert(pairs, 1, draws.integers(0, RELATIONS, len(pairs)), 1) if typed else pairs


def of_links(num_nodes: int, links: dict[str, torch.Tensor]) -> Graph:
    """A graph of links alone."""
    return Graph(
        torch.zeros(num_nodes + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), links=links, name="linked"
    )


@st.composite
def linked_graphs(draw: st.DrawFn, max_nodes: int = 12) -> Graph:
    """With one vertex, too; links of few vertices are often known twice."""
    num_nodes, typed = draw(st.integers(1, max_nodes)), draw(st.booleans())
    sizes = (draw(st.integers(1, 25)), draw(st.integers(0, 8)), draw(st.integers(0, 8)))
    return linked_graph(num_nodes, typed, draw(st.integers(0, 2**32 - 1)), sizes)
