"""Files that PyG saves are read as PyG has them: ten variants of one graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.errors import DataError

pyg = pytest.importorskip("torch_geometric.data")

EDGES = torch.tensor([[0, 1, 3, 0], [1, 2, 2, 3]])
PARALLEL = torch.cat([EDGES, torch.tensor([[0, 1], [1, 0]])], 1)
X = torch.arange(8).reshape(4, 2).float()
VARIANTS: dict[str, dict[str, Any]] = {
    "undirected": {"edge_index": torch.cat([EDGES, EDGES.flip(0)], 1)},
    "directed": {"edge_index": EDGES},
    "parallel edges": {"edge_index": PARALLEL, "edge_weight": torch.arange(1.0, 7)},
    "loops": {"edge_index": torch.cat([EDGES, torch.tensor([[2], [2]])], 1)},
    "no names": {"edge_index": EDGES, "num_nodes": 6},
    "defaults": {"edge_index": EDGES, "edge_attr": torch.full((4, 1), 2.0)},
    "weights": {"edge_index": EDGES, "edge_weight": torch.tensor([0.5, 2, 0.25, 1e-3])},
    "large integers": {
        "edge_index": EDGES,
        "n_id": torch.tensor([1, 2**31, 2**40, -(2**35)]),
        "edge_weight": torch.tensor([1, 2**31, 2**33, 3]),
    },
    "missing values": {
        "edge_index": EDGES,
        "y": torch.tensor([0, -1, 1, -1]),
        "train_mask": torch.tensor([True, False, False, False]),
    },
    "mixed types": {
        "edge_index": EDGES,
        "y": torch.tensor([1, 0, 1, 0]),
        "town": ["x", "y", "x", "z"],
        "member": torch.tensor([True, False, True, True]),
        "title": "a graph",
    },
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_file_is_what_pyg_has(variant: str, whole: bool, tmp_path: Path) -> None:
    given = VARIANTS[variant]
    data = pyg.Data(x=None if "num_nodes" in given else X, **given)
    torch.save(data if whole else data.to_dict(), tmp_path / "x.pt")
    found = Pyg(path=str(tmp_path / "x.pt"), symmetrize=False).read()
    [vertices], [edges] = found.vertices.values(), found.edges
    assert vertices.count == data.num_nodes
    rows = sorted(
        zip(
            edges.source.tolist(),
            edges.destination.tolist(),
            [1.0] * data.num_edges if edges.weight is None else edges.weight.tolist(),
            strict=True,
        )
    )
    weight = data.edge_weight if "edge_weight" in data else data.edge_attr
    weights = torch.ones(data.num_edges) if weight is None else weight.reshape(-1).float()
    assert rows == sorted(zip(*data.edge_index.tolist(), weights.tolist(), strict=True))
    if data.x is not None:
        assert isinstance(vertices.features, np.ndarray) and vertices.features.tolist() == X.tolist()
    if data.y is not None:
        assert vertices.labels is not None and vertices.labels.tolist() == data.y.tolist()
    if "n_id" in data:
        assert vertices.ids is not None and vertices.ids.tolist() == data.n_id.tolist()
    if variant == "mixed types":
        assert all(any(name in note for note in found.notes) for name in ("town", "member", "title"))


def test_equal_ids_are_not_used_and_said(tmp_path: Path) -> None:
    torch.save(pyg.Data(x=X, edge_index=EDGES, n_id=torch.tensor([1, 2, 1, 3])), tmp_path / "x.pt")
    found = Pyg(path=str(tmp_path / "x.pt")).read()
    assert found.vertices["vertex"].ids is None
    assert "n_id is left out: it has no different number or text for each of the 4 vertices" in found.notes
    with pytest.raises(DataError, match=r"n_id.*different number or text for each of the 4 vertices"):
        Pyg(path=str(tmp_path / "x.pt"), ids="n_id").read()
