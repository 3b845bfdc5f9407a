"""Graphs that PyTorch Geometric saved, with the archive, a tensor or the pickle in it damaged."""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

import torch

from gnnexp.datasets.formats.pyg.dataset import Pyg
from torture.fuzz.case import Case
from torture.fuzz.kinds.datasets import valid_graph
from torture.fuzz.mutate.arrays import zipped


def make(random: Random) -> Case:
    """A file of `torch.save` that gnnexp has to refuse, or to make a graph of that keeps all rules."""
    forms = _saved()
    form = random.choice(sorted(forms))
    return Case(form, {"graph.pt": zipped(forms[form], random)}, lambda: valid_graph(Pyg(path="graph.pt")))


@lru_cache(maxsize=1)
def _saved() -> Mapping[str, bytes]:
    """The files by form. Where torch_geometric is missing, they have no objects of its classes."""
    whole = _objects() if importlib.util.find_spec("torch_geometric") else {}
    files = {}
    for form, value in (_mappings() | whole).items():
        stream = io.BytesIO()
        torch.save(value, stream)
        files[form] = stream.getvalue()
    return files


def _attributes() -> dict[str, Any]:
    return {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), "x": torch.rand(3, 2), "y": torch.tensor([0, 1, 0])}


def _mappings() -> dict[str, object]:
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]), (3, 3))
    link = ("a", "to", "b")
    return {
        "dictionary": _attributes(),
        "typed dictionary": {
            "a": {"x": torch.rand(3, 2)},
            "b": {"num_nodes": 3},
            link: {"edge_index": torch.tensor([[0], [1]])},
        },
        "coo": {"adj_t": matrix, "y": torch.tensor([0, 1, 0])},
        "csr": {"adj_t": matrix.to_sparse_csr()},
    }


def _objects() -> dict[str, object]:
    data: Any = importlib.import_module("torch_geometric.data")
    edge_index: Any = importlib.import_module("torch_geometric").EdgeIndex
    typed = data.HeteroData()
    typed["a"].x, typed["b"].y = torch.rand(3, 2), torch.tensor([0, 1, 0])
    typed["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    whole = data.Data(**_attributes())
    return {
        "Data": whole,
        "HeteroData": typed,
        "one graph": data.InMemoryDataset.collate([whole]),
        "EdgeIndex": data.Data(edge_index=edge_index([[0, 1], [1, 0]]), num_nodes=2),
    }
