"""Other tables for a trained model: features are made with the numbers and categories of the training tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.reading.names import GraphNames, names_of
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph

COLUMNS = "id,age,income,town,class"
ROWS = ["1,30,1.5,x,good", "2,20,2.5,y,bad", "3,50,,x,good", "4,1,0,z,good"]
OPTIONS: dict[str, Any] = {
    "nodes": "nodes.csv",
    "categories": ["town"],
    "label": "class",
    "standardize": True,
    "empty": "mean",
}


def tables(folder: Path, rows: list[str], header: str = COLUMNS, edges: str = "1,2") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "edges.csv").write_text(f"src,dst\n{edges}\n")
    return folder


def made(folder: Path, names: GraphNames | None = None, **options: Any) -> tuple[Graph, GraphNames]:
    target = folder / ("own" if names is None else "like")
    dataset = Tables(path=str(folder), **{**OPTIONS, **options})
    graph = (dataset if names is None else dataset.like(names)).generate(target)
    return graph, names_of(target)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[torch.Tensor, GraphNames]:
    graph, names = made(tables(tmp_path / "trained", ROWS))
    assert isinstance(graph.features, torch.Tensor)
    return graph.features.clone(), names


def features(graph: Graph) -> torch.Tensor:
    assert isinstance(graph.features, torch.Tensor)
    return graph.features


def test_the_same_rows_have_the_same_features_in_any_tables(
    trained: tuple[torch.Tensor, GraphNames], tmp_path: Path
) -> None:
    """Also a missing number, and one category without its neighbours. The entries are kept for the next graph."""
    rows, names = trained
    for chosen in ([3, 1], [2], [0, 1, 2, 3]):
        other = tables(
            tmp_path / "other",
            [ROWS[one] for one in chosen],
            edges=f"{chosen[0] + 1},{chosen[-1] + 1}" if len(chosen) > 1 else "3,3",
        )
        graph, again = made(other, names, self_loops="keep")
        assert torch.equal(features(graph), rows[chosen]) and again.columns == names.columns


def test_columns_may_be_in_another_order_and_others_are_not_read(
    trained: tuple[torch.Tensor, GraphNames], tmp_path: Path
) -> None:
    rows, names = trained
    other = tables(tmp_path / "other", ["7,x,30,1,1.5", "8,z,1,2,0"], "id,town,age,height,income", "7,8")
    graph, _ = made(other, names)
    assert torch.equal(features(graph), rows[[0, 3]]) and graph.labels is None


def test_labels_may_be_missing(trained: tuple[torch.Tensor, GraphNames], tmp_path: Path) -> None:
    other = tables(tmp_path / "other", ["1,30,1.5,x,", "2,1,0,z,"])
    assert made(other, trained[1])[0].labels is None


def test_new_categories_are_refused_with_their_rows_or_have_no_feature(
    trained: tuple[torch.Tensor, GraphNames], tmp_path: Path
) -> None:
    rows, names = trained
    other = tables(tmp_path / "other", ["1,30,1.5,x,good", "2,20,2.5,new,bad"])
    with pytest.raises(DataError, match=r"line 3, column town='new': is no value that the model") as one:
        made(other, names)
    assert "dataset.new_values=zero" in one.value.problems[0].fix
    graph, _ = made(other, names, new_values="zero")
    assert features(graph)[1].tolist() == [*rows[1, :2].tolist(), 0, 0, 0]


@pytest.mark.parametrize(
    ("header", "rows", "options", "text"),
    [
        (
            "id,age,town,class",
            ["1,30,x,good", "2,20,y,bad"],
            {},
            r"column income='missing': the model was trained with",
        ),
        (COLUMNS, ROWS, {"standardize": False}, r"dataset.standardize=False: the model was trained with true"),
        (COLUMNS, ["1,old,1.5,x,good", "2,20,2.5,y,bad"], {}, r"column age='old': is no column of numbers"),
    ],
)
def test_other_columns_are_refused(
    header: str,
    rows: list[str],
    options: dict[str, Any],
    text: str,
    trained: tuple[torch.Tensor, GraphNames],
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=text):
        made(tables(tmp_path / "other", rows, header), trained[1], **options)


def test_a_mean_that_was_not_kept_is_refused(tmp_path: Path) -> None:
    plain = {"standardize": False, "empty": "error"}
    _, names = made(tables(tmp_path / "trained", [ROWS[0], ROWS[1]]), **plain)
    other = tables(tmp_path / "other", [ROWS[0], "2,,2.5,y,bad"])
    with pytest.raises(DataError, match="no means are kept"):
        made(other, names, standardize=False, empty="mean")
    assert features(made(other, names, standardize=False, empty="zero")[0])[1, 0] == 0


def test_words_are_those_of_the_training_data(tmp_path: Path) -> None:
    options = {"features": "words.json", "categories": [], "standardize": False, "empty": "error"}
    folder = tables(tmp_path / "trained", ROWS)
    (folder / "words.json").write_text(json.dumps({"1": [0, 9], "2": [3]}))
    graph, names = made(folder, **options)
    assert features(graph).shape == (4, 10)
    other = tables(tmp_path / "other", ROWS[:2])
    (other / "words.json").write_text(json.dumps({"2": [3]}))
    assert features(made(other, names, **options)[0]).tolist() == features(graph)[[2, 1]].tolist()
    (other / "words.json").write_text(json.dumps({"1": [10, 9], "2": [12]}))
    with pytest.raises(DataError, match=r"\[10, 12\]: 2 words that the model was not trained with: .* 0 to 9"):
        made(other, names, **options)
    found = features(made(other, names, new_values="zero", **options)[0])
    assert found.shape == (2, 10) and np.flatnonzero(found[0]).tolist() == [9] and not found[1].any()


def test_rows_of_a_file_must_have_the_same_columns(tmp_path: Path) -> None:
    options = {"features": "rows.npy", "categories": [], "standardize": False, "empty": "error"}
    folder = tables(tmp_path / "trained", ROWS)
    np.save(folder / "rows.npy", np.ones((4, 3)))
    _, names = made(folder, **options)
    other = tables(tmp_path / "other", ROWS)
    np.save(other / "rows.npy", np.ones((4, 2)))
    with pytest.raises(DataError, match=r"2 columns.*the model takes 3"):
        made(other, names, **options)


def test_the_key_of_the_graph_depends_on_the_training_tables(
    trained: tuple[torch.Tensor, GraphNames], tmp_path: Path
) -> None:
    dataset = Tables(path=str(tables(tmp_path / "other", ROWS)), **OPTIONS)
    keys = {dataset.key(), dataset.like(trained[1]).key(), dataset.like(GraphNames(columns={"vertex": []})).key()}
    assert len(keys) == 3
