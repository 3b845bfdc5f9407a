"""A graph with communities whose training vertices lie in a few of them: what balanced edges say nothing about.

Writes a gnnexp graph folder: `gnnexp sweep splitting dataset=gnnexp_format dataset.path=FOLDER`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.graph.format import save_graph
from gnnexp.graph.graph import Splits
from gnnexp.prepare import cache_root, prepare_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-nodes", type=int, default=100_000)
    parser.add_argument("--num-edges", type=int, default=2_000_000)
    parser.add_argument("--communities", type=int, default=64)
    parser.add_argument("--train-communities", type=int, default=8, help="communities that hold all training vertices")
    parser.add_argument("--train", type=int, default=5_000, help="training vertices")
    chosen = parser.parse_args()
    overrides = [
        "dataset=dcsbm", f"dataset.num_nodes={chosen.num_nodes}", f"dataset.num_edges={chosen.num_edges}",
        f"dataset.num_classes={chosen.communities}", "dataset.num_features=32", "dataset.homophily=0.9",
        "dataset.label_noise=0.0",
    ]
    graph, _ = prepare_graph(build(compose(overrides).config["dataset"], Dataset), cache_root())
    assert graph.labels is not None
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    dense = order[graph.labels[order] < chosen.train_communities]
    train = dense[: chosen.train].sort().values
    rest = order[~torch.isin(order, train)]
    splits = Splits(train, rest[:1000].sort().values, rest[1000:2000].sort().values)
    save_graph(replace(graph, splits=splits, name="skewed", notes=()), chosen.folder)
    print(f"{chosen.folder}: {graph.num_nodes} vertices, {graph.num_edges} edges, {train.numel()} training vertices in "
          f"{chosen.train_communities} of {chosen.communities} communities")


if __name__ == "__main__":
    main()
