"""MAG240M and WikiKG90M in small, in the layout that the `ogb` package documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gnnexp.datasets.published.ogb import Ogb
from gnnexp.errors import DataError


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


@pytest.fixture
def mag(tmp_path: Path) -> Path:
    """4 papers, 2 authors, 1 institution."""
    folder = tmp_path / "mag240m_kddcup2021"
    edges = {
        "author___writes___paper": [[0, 1, 1], [0, 0, 3]],
        "author___affiliated_with___institution": [[1], [0]],
        "paper___cites___paper": [[0, 2], [1, 3]],
    }
    for name, pairs in edges.items():
        save(folder / "processed" / name / "edge_index.npy", np.array(pairs))
    save(folder / "processed/paper/node_feat.npy", np.eye(4, 3, dtype=np.float16))
    save(folder / "processed/paper/node_label.npy", np.array([1, 0, np.nan, 2], np.float32))
    save(folder / "processed/paper/node_year.npy", np.array([2000, 2001, 2002, 2003]))
    torch.save({"paper": 4, "author": 2, "institution": 1, "num_classes": 3}, folder / "meta.pt")
    torch.save({"train": np.array([0]), "valid": np.array([1]), "test": np.array([2, 3])}, folder / "split_dict.pt")
    return folder


@pytest.fixture
def wiki(tmp_path: Path) -> Path:
    folder = tmp_path / "wikikg90m-v2"
    save(folder / "processed/train_hrt.npy", np.array([[0, 0, 1], [1, 1, 2], [3, 0, 2]], np.int32))
    save(folder / "processed/val_hr.npy", np.array([[0, 1]], np.int32))
    save(folder / "processed/val_t.npy", np.array([3], np.int32))
    save(folder / "processed/entity_feat.npy", np.eye(4, 2, dtype=np.float16))
    torch.save({"num_entities": 4, "num_relations": 2}, folder / "meta.pt")
    return folder


def test_papers_authors_and_institutions(mag: Path) -> None:
    graph = Ogb(path=str(mag)).load()
    assert graph.name == "mag240m-kddcup2021" and graph.node_types is not None and graph.labels is not None
    assert graph.node_types.tolist() == [0, 0, 0, 0, 1, 1, 2] and graph.labels.tolist() == [1, 0, -1, 2, -1, -1, -1]
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0], [1], [3]]
    assert any("1 vertices of the split have no label" in note for note in graph.notes)
    assert graph.num_relations == 6 and graph.num_classes == 3
    edges = set(
        zip(
            graph.indices.tolist(),
            graph.edge_types.tolist(),  # type: ignore[union-attr]
            graph.destinations().tolist(),
            strict=True,
        )
    )
    assert {edge for edge in edges if edge[1] < 3} == {(5, 0, 6), (4, 1, 0), (5, 1, 0), (5, 1, 3), (0, 2, 1), (2, 2, 3)}
    assert isinstance(graph.features, torch.Tensor) and graph.features.shape == (7, 3)
    assert graph.features[4:].sum() == 0 and graph.features.dtype == torch.float32
    assert Ogb.recognised(mag) == ["dataset.name=mag240m-kddcup2021"]
    wide = Ogb(path=str(mag), features_by_type=True).load()
    assert wide.num_features == 3 + 3


def test_triples_of_wikidata(wiki: Path) -> None:
    graph = Ogb(path=str(wiki)).load()
    assert graph.name == "wikikg90m-v2" and graph.num_edges == 6 and graph.num_relations == 4
    assert {name: links.tolist() for name, links in graph.links.items()} == {
        "train": [[0, 0, 1], [1, 1, 2], [3, 0, 2]],
        "valid": [[0, 1, 3]],
    }
    assert graph.num_features == 2 and any("secret" in note for note in graph.notes)
    (wiki / "processed/entity_feat.npy").unlink()
    assert Ogb(path=str(wiki)).load().features is None


def test_any_name_of_the_folder(wiki: Path) -> None:
    moved = wiki.rename(wiki.with_name("download"))
    assert Ogb(path=str(moved)).load().name == "wikikg90m-download"


@pytest.mark.parametrize(
    ("file", "array", "said"),
    [
        ("processed/paper___cites___paper/edge_index.npy", np.array([[0], [4]]), "paper has the ids 0 to 3"),
        ("processed/paper___cites___paper/edge_index.npy", np.zeros((3, 2), int), "shape"),
        ("processed/paper/node_feat.npy", np.eye(3, dtype=np.float16), "shape"),
        ("processed/paper/node_label.npy", np.array([0.5, 0, 1, 2]), "whole numbers"),
    ],
)
def test_wrong_arrays(file: str, array: np.ndarray, said: str, mag: Path) -> None:
    np.save(mag / file, array)
    with pytest.raises(DataError, match=said):
        Ogb(path=str(mag)).load()


def test_wrong_counts_and_splits(mag: Path, wiki: Path) -> None:
    torch.save({"paper": 4, "author": -2}, mag / "meta.pt")
    with pytest.raises(DataError, match=r"meta\.pt.*author, institution"):
        Ogb(path=str(mag)).load()
    torch.save({"paper": 4, "author": 2, "institution": 1 << 39}, mag / "meta.pt")
    with pytest.raises(DataError, match="memory"):
        Ogb(path=str(mag)).load()
    torch.save({"paper": 4, "author": 2, "institution": 1}, mag / "meta.pt")
    torch.save({"train": np.array([4]), "valid": np.array([1]), "test": np.array([2])}, mag / "split_dict.pt")
    with pytest.raises(DataError, match="ids below 4"):
        Ogb(path=str(mag)).load()
    torch.save({"num_entities": 4, "num_relations": 1}, wiki / "meta.pt")
    with pytest.raises(DataError, match="must be below 1"):
        Ogb(path=str(wiki)).load()


def test_missing_files_are_named(mag: Path) -> None:
    for file in ("split_dict.pt", "processed/author___writes___paper/edge_index.npy"):
        (mag / file).unlink()
    with pytest.raises(DataError) as caught:
        Ogb(path=str(mag)).sources()
    assert len(caught.value.problems) == 2
