"""Tables of pairs: ids and relations as the model knows them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from own_tables import made, text
from pyarrow import parquet

from gnnexp.api.predicting.graphs import Target
from gnnexp.api.predicting.ids import OwnIds
from gnnexp.api.predicting.links import read_pairs
from gnnexp.datasets.reading.names import names_of
from gnnexp.errors import DataError
from gnnexp.tasks.link_prediction import LinkPredictionOptions


def trained(folder: Path, edges: object, num_relations: int, **options: Any) -> tuple[Any, Target]:
    """What `read_pairs` needs of a model of the graph of these tables, and its graph."""
    graph, place = made(folder, edges=edges, symmetrize=False, **options)
    links = SimpleNamespace(node_types=None, links={"train": None})
    task = LinkPredictionOptions().make()
    task.num_relations = num_relations
    model = SimpleNamespace(task=task, names=names_of(place), graph=links)
    return model, Target(None, OwnIds.of(place, graph.num_nodes), graph.links, None, graph.node_types)


@pytest.mark.parametrize("trained_on", ["", ".0"])
@pytest.mark.parametrize("asked", ["", ".0"])
def test_relations_and_ids_may_be_written_with_points(trained_on: str, asked: str, tmp_path: Path) -> None:
    text(
        tmp_path / "edges.csv",
        "src,relation,dst",
        *(f"{u}{trained_on},{kind}{trained_on},{v}" for u, kind, v in ((5, 10, 7), (7, 9, 5), (8, 10, 5))),
    )
    model, target = trained(tmp_path, "edges.csv", 2)
    assert list(model.names.relations) == ["9", "10"]
    pairs, notes = text(tmp_path / "p.csv", "src,relation,dst", f"8{asked},9{asked},7", f"5,10{asked},8"), list[str]()
    if asked:
        text(pairs, "src,relation,dst", "8.0,9.0,7", "5.0,10.0,8")
    assert read_pairs(model, target, pairs, notes).tolist() == [[2, 0, 1], [0, 1, 2]]
    assert notes == [
        "2 ids of the column src count as integers: the file writes all of them with .0",
        "2 relations of the column relation count as integers: the file writes all of them with .0",
    ] * bool(asked)
    text(pairs, "src,relation,dst", "8,9.0,7", "5,10,8")
    with pytest.raises(DataError, match=r"p\.csv, line 2, column relation='9\.0': is no relation of the model"):
        read_pairs(model, target, pairs, notes)


def test_relations_that_are_texts_stay_texts(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,relation,dst", "0,1.0,1", "1,x,2", "2,1,0")
    model, target = trained(tmp_path, "edges.csv", 3)
    assert list(model.names.relations) == ["1", "1.0", "x"]
    pairs, notes = text(tmp_path / "p.csv", "src,relation,dst", "0,1.0,1"), list[str]()
    assert read_pairs(model, target, pairs, notes).tolist() == [[0, 1, 1]] and not notes


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_pairs_of_a_type_of_integers_and_one_of_texts(form: str, tmp_path: Path) -> None:
    text(tmp_path / "buys.csv", "src,dst", "10,1.0", "9,x", "11,7.0")
    model, target = trained(tmp_path, {"buys": {"table": "buys.csv", "from": "person", "to": "thing"}}, 0)
    assert target.ids.texts == (False, True) and target.ids.text  # 9, 10, 11 and 1.0, 7.0, x
    pairs, notes = tmp_path / f"p.{form}", list[str]()
    if form == "csv":
        text(pairs, "src,dst", "11.0,7.0", "9.0,1.0")
    else:
        parquet.write_table(pa.table({"src": [11.0, 9.0], "dst": ["7.0", "1.0"]}), pairs)
    assert read_pairs(model, target, pairs, notes).tolist() == [[2, 4], [0, 3]]
    assert target.ids.chosen(read_pairs(model, target, pairs, notes)[:, 1].numpy())["id"].to_pylist() == ["7.0", "1.0"]
