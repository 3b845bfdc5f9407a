"""The products-like graph of the stages: made on the host by our generator, and kept on this machine for other stages.

The generator takes 31 s of one core for 2,449,029 vertices and 123,860,032 edges, and no byte has to be carried.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.graph.graph import Graph, Splits

NUM_FEATURES = 100
QUICK_SCALE = 0.0002


def products_like(scale: float, *, features: bool = False) -> Graph:
    """Topology, labels and splits of the generator, and random features if they are wanted: speed needs no meaning."""
    place = Path(tempfile.gettempdir()) / f"gnnexp-products-like-{scale:g}.pt"
    if not place.exists():
        made = Dcsbm(shape="products_like", scale=scale, num_features=1).load()
        assert made.labels is not None
        held = {
            "indptr": made.indptr,
            "indices": made.indices,
            "labels": made.labels,
            **{name: getattr(made.splits, name) for name in ("train", "val", "test")},
        }
        unfinished = place.with_suffix(f".{os.getpid()}")
        torch.save(held, unfinished)
        unfinished.replace(place)
    found = torch.load(place, mmap=True)
    graph = Graph(
        found["indptr"],
        found["indices"],
        labels=found["labels"],
        num_classes=47,
        name="products_like",
        splits=Splits(found["train"], found["val"], found["test"]),
    )
    if not features:
        return graph
    generator = torch.Generator().manual_seed(0)
    return replace(graph, features=torch.rand(graph.num_nodes, NUM_FEATURES, generator=generator))


def with_features_in_file(graph: Graph) -> Graph:
    """The same graph with its features mapped from a file, as those of an artifact. The file has no name any more."""
    assert isinstance(graph.features, torch.Tensor)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        file = Path(folder) / "features.npy"
        np.save(file, graph.features.numpy())
        return replace(graph, features=torch.from_numpy(np.load(file, mmap_mode="r")))
