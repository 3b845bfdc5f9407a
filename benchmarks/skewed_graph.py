"""A graph with communities of different density whose training vertices lie in a few of them.

What balanced edges and targets say nothing about: how many edges a target's neighbourhood has. Community c keeps a
share of its edges, spread evenly in the logarithm between 1 and `--sparsest`; every fourth community holds targets.

Writes a gnnexp graph folder: `gnnexp sweep splitting dataset=gnnexp_format dataset.path=FOLDER`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.format import save_graph
from gnnexp.preparation.artifacts import prepare_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-nodes", type=int, default=100_000)
    parser.add_argument("--num-edges", type=int, default=6_000_000)
    parser.add_argument("--communities", type=int, default=64)
    parser.add_argument("--train-every", type=int, default=4, help="one community in so many has training vertices")
    parser.add_argument("--sparsest", type=float, default=1 / 32, help="share of its edges that the last one keeps")
    parser.add_argument("--train", type=int, default=5_000, help="training vertices")
    chosen = parser.parse_args()
    overrides = [
        "dataset=dcsbm",
        f"dataset.num_nodes={chosen.num_nodes}",
        f"dataset.num_edges={chosen.num_edges}",
        f"dataset.num_classes={chosen.communities}",
        "dataset.num_features=32",
        "dataset.homophily=0.9",
        "dataset.label_noise=0.0",
    ]
    graph, _ = prepare_graph(build(compose(overrides).config["dataset"], Dataset), cache_root())
    assert graph.labels is not None
    labels = graph.labels
    graph = _thinned(graph, chosen.sparsest ** (labels / (2 * (chosen.communities - 1))))
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    candidates = order[labels[order] % chosen.train_every == 0]
    train = candidates[: chosen.train].sort().values
    rest = order[~torch.isin(order, train)]
    splits = Splits(train, rest[:1000].sort().values, rest[1000:2000].sort().values)
    save_graph(replace(graph, splits=splits, name="skewed", notes=()), chosen.folder)
    print(
        f"{chosen.folder}: {graph.num_nodes} vertices, {graph.num_edges} edges, {train.numel()} training vertices in "
        f"every {chosen.train_every}th of {chosen.communities} communities"
    )


def _thinned(graph: Graph, keep: Tensor) -> Graph:
    """The graph without the edges (u, v) and (v, u) that lose a draw of `keep[u] * keep[v]`."""
    src, dst = graph.indices.long(), graph.destinations().long()
    pair = torch.minimum(src, dst) * graph.num_nodes + torch.maximum(src, dst)
    pairs, which = torch.unique(pair, return_inverse=True)
    drawn = torch.from_numpy(np.random.default_rng(0).random(pairs.numel()))[which]
    stays = drawn < keep[src] * keep[dst]
    degrees = torch.bincount(dst[stays], minlength=graph.num_nodes)
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
    return replace(graph, indptr=indptr, indices=graph.indices[stays])


if __name__ == "__main__":
    main()
