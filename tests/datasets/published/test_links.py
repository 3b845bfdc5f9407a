"""Every form of links that OGB's link-property datasets have, made here as `torch.save` writes them."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.published.ogb import Ogb
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def save(folder: Path, **splits: Any) -> None:
    target = folder / "split" / "time"
    target.mkdir(parents=True, exist_ok=True)
    for name, content in splits.items():
        torch.save(content, target / f"{name}.pt", pickle_protocol=4)


def ids(*values: int) -> np.ndarray:
    return np.array(values)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Six vertices with two features, and five edges."""
    folder = tmp_path / "ogbl_tiny"
    put(folder / "raw/edge.csv.gz", "0,1\n1,2\n3,4\n2,5\n4,5\n")
    put(folder / "raw/num-node-list.csv.gz", "6\n")
    put(folder / "raw/node-feat.csv.gz", "1.5,2\n" * 6)
    return folder


def load(folder: Path, **options: Any) -> Graph:
    return Ogb(path=str(folder), **options).load()


def test_pairs_with_fixed_negatives_as_in_collab(plain: Path) -> None:
    weights = {"weight": ids(1, 2), "year": ids(2000, 2001)}
    pairs = {"edge": np.array([[0, 5], [1, 4]]), "edge_neg": np.array([[0, 3]])}
    save(plain, train={"edge": np.array([[0, 1], [1, 2]]), **weights}, valid=pairs, test=pairs)
    graph = load(plain)
    assert graph.name == "ogbl-tiny" and set(graph.links) == {"train", "valid", "valid_neg", "test", "test_neg"}
    assert graph.links["train"].tolist() == [[0, 1], [1, 2]]


def test_sources_and_targets_as_in_citation2(plain: Path) -> None:
    def part(*targets: int) -> dict[str, np.ndarray]:
        return {
            "source_node": np.arange(len(targets)),
            "target_node": ids(*targets),
            "target_node_neg": np.zeros((len(targets), 3), int),
        }

    save(plain, train=part(1, 2, 3), valid=part(4), test=part(5))
    graph = load(plain)
    assert {name: found.tolist() for name, found in graph.links.items()} == {
        "train": [[0, 1], [1, 2], [2, 3]],
        "valid": [[0, 4]],
        "test": [[0, 5]],
    }
    assert any("own negatives" in note for note in graph.notes)


def test_triples_as_in_wikikg2(plain: Path) -> None:
    put(plain / "raw/edge_reltype.csv.gz", "0\n1\n2\n0\n1\n")

    def part(head: int, relation: int, tail: int) -> dict[str, np.ndarray]:
        return {"head": ids(head), "relation": ids(relation), "tail": ids(tail), "head_neg": np.zeros((1, 3), int)}

    save(plain, train=part(0, 0, 1), valid=part(1, 2, 3), test=part(2, 1, 4))
    graph = load(plain)
    assert graph.num_relations == 6 and graph.edge_types is not None
    assert {name: found.tolist() for name, found in graph.links.items()} == {
        "train": [[0, 0, 1]],
        "valid": [[1, 2, 3]],
        "test": [[2, 1, 4]],
    }
    (plain / "split/time/train.pt").unlink()
    assert load(plain).links["train"].tolist() == [[0, 0, 1], [1, 1, 2], [3, 2, 4], [2, 0, 5], [4, 1, 5]]
    assert load(plain, inverse_relations=False).num_relations == 3
    save(plain, test=part(2, 3, 4))
    with pytest.raises(DataError, match=r"test\.pt: relation.*below 3"):
        load(plain)
    put(plain / "raw/edge_reltype.csv.gz", "0\n1\n")
    with pytest.raises(DataError, match=r"edge_reltype.*one column and 5 rows"):
        load(plain)


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """2 drugs (0, 1) and 3 proteins (2, 3, 4); the dataset numbers its relations backwards."""
    folder = tmp_path / "ogbl_biotiny"
    put(folder / "raw/num-node-dict.csv.gz", "drug,protein\n2,3\n")
    put(folder / "raw/triplet-type-list.csv.gz", "drug,binds,protein\nprotein,near,protein\n")
    for number, (name, edges) in enumerate(
        (("drug___binds___protein", "0,0\n1,2\n"), ("protein___near___protein", "0,1\n"))
    ):
        put(folder / f"raw/relations/{name}/edge.csv.gz", edges)
        put(folder / f"raw/relations/{name}/edge_reltype.csv.gz", f"{1 - number}\n" * edges.count("\n"))
    return folder


def of_types(*triples: tuple[str, int, int, str, int]) -> dict[str, Any]:
    kinds, heads, relations, others, tails = zip(*triples, strict=True)
    return {
        "head_type": list(kinds),
        "head": ids(*heads),
        "relation": ids(*relations),
        "tail_type": list(others),
        "tail": ids(*tails),
        "tail_neg": np.zeros((len(triples), 2), int),
    }


def test_triples_of_typed_vertices_as_in_biokg(typed: Path) -> None:
    save(
        typed,
        train=of_types(("drug", 0, 1, "protein", 0), ("protein", 0, 0, "protein", 1)),
        valid=of_types(("drug", 1, 1, "protein", 2)),
        test=of_types(("protein", 2, 0, "protein", 0)),
    )
    graph = load(typed)
    assert graph.node_types is not None and graph.node_types.tolist() == [0, 0, 1, 1, 1]
    assert graph.labels is None and graph.num_relations == 4
    assert {name: found.tolist() for name, found in graph.links.items()} == {
        "train": [[0, 0, 2], [2, 1, 3]],
        "valid": [[1, 0, 4]],
        "test": [[4, 1, 2]],
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head_type": ["drug", "town"]}, "of the types drug, protein"),
        ({"head_type": ["drug"]}, "must be 2 of"),
        ({"head": ids(0, 3)}, "id of its type"),
        ({"relation": ids(0, 2)}, "below 2"),
        ({"tail": ids(0)}, "must be 1 of"),
        ({"tail": np.array([0.5, 1])}, "numbers below"),
        ({"tail_type": 5}, "must be 2 of"),
    ],
)
def test_wrong_triples(change: dict[str, Any], said: str, typed: Path) -> None:
    right = of_types(("drug", 0, 1, "protein", 0), ("protein", 0, 0, "protein", 1))
    save(typed, train=right, valid=right, test={**right, **change})
    with pytest.raises(DataError, match=said):
        load(typed)


def test_a_vessel_has_arrays_and_no_labels(tmp_path: Path) -> None:
    folder = tmp_path / "ogbl_vessel"
    (folder / "raw").mkdir(parents=True)
    np.savez(
        folder / "raw" / "data.npz",
        edge_index=np.array([[0, 1], [1, 2]]),
        num_nodes_list=ids(3),
        num_edges_list=ids(2),
        node_feat=np.eye(3),
    )
    pairs = {"edge": np.array([[0, 2]]), "edge_neg": np.array([[1, 0]])}
    save(folder, train=pairs, valid=pairs, test=pairs)
    graph = load(folder)
    assert graph.labels is None and graph.num_features == 3 and graph.links["test_neg"].tolist() == [[1, 0]]


class Executes:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, (Path("executed"),)  # type: ignore[return-value]


def test_what_executes_is_refused(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(plain / "raw/edge_reltype.csv.gz", "0\n" * 5)
    part = {"head": ids(0), "relation": ids(0), "tail": ids(1)}
    save(plain, train=part, valid=part, test={**part, "tail": Executes()})
    with pytest.raises(DataError, match=r"test\.pt"):
        load(plain)
    assert not Path("executed").exists() and pickle.dumps(part)
