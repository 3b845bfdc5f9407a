"""Tables of predictions and embeddings: values are those of the model, in bounded memory."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from untrained import untrained

from gnnexp.api.predicting import vertices
from gnnexp.api.predicting.command import write_table
from gnnexp.api.predicting.graphs import target_graph
from gnnexp.api.predicting.vertices import embedded, predicted
from gnnexp.api.trained import TrainedModel
from gnnexp.datasets.reading.names import GraphNames, ids_file
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.writer import ArrayWriter
from gnnexp.testing.graphs import nasty_graph
from gnnexp.tiers.host_rows import Machines

SMALL = ("model.hidden=12", "model.layers=3")
ODD = ["a,b", 'say "x"', "two\nlines", "zoë 水", " "]


def table_of(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def named(folder: Path, types: dict[str, int], classes: list[str]) -> None:
    """Names and odd ids next to a graph."""
    with ArrayWriter(folder) as writer:
        GraphNames(list(types), classes).write(writer)
        for kind, count in types.items():
            ids = [f"{ODD[number % 5]} {number}" for number in range(count)]
            parquet.write_table(pa.table({"id": ids, "vertex": np.arange(count)}), writer.extra(ids_file(kind)))
        writer.finish({})


@pytest.mark.parametrize(
    ("dtype", "suffix"),
    [
        ("float32", ".csv"),
        ("float64", ".parquet"),
        pytest.param("float64", ".csv", marks=pytest.mark.slow),
        pytest.param("float32", ".parquet", marks=pytest.mark.slow),
    ],
)
def test_classes_and_probabilities_have_the_names_of_the_user(dtype: str, suffix: str, tmp_path: Path) -> None:
    named(tmp_path / "names", {"person": 20, "word": 40}, ["gut", "schlecht", "ü,", '"q"'])
    model = untrained(nasty_graph(), tmp_path / "names", *SMALL, f"train.dtype={dtype}")
    out = tmp_path / f"table{suffix}"
    assert write_table(out, predicted(model, target_graph(model), probabilities=True)) == 60
    if suffix == ".csv":
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = parquet.read_table(out).to_pylist()
    shares = torch.softmax(model().double(), 1)
    classes = ["gut", "schlecht", "ü,", '"q"']
    assert [row["id"] for row in rows] == [f"{ODD[number % 5]} {number}" for number in [*range(20), *range(40)]]
    assert [row["type"] for row in rows] == ["person"] * 20 + ["word"] * 40
    assert [row["class"] for row in rows] == [classes[number] for number in shares.argmax(1)]
    for number, name in enumerate(classes):
        assert [float(row[f"p_{name}"]) for row in rows] == shares[:, number].tolist()
    assert [float(row["probability"]) for row in rows] == shares.max(1).values.tolist()


def test_several_labels_have_a_probability_each(tmp_path: Path) -> None:
    model = untrained(multilabel(), tmp_path, *SMALL)
    table = table_of(list(predicted(model, target_graph(model), probabilities=False)))
    assert table.column_names == ["id", "p_0", "p_1", "p_2"]
    assert table["id"].to_pylist() == list(range(60))
    assert table["p_1"].to_pylist() == torch.sigmoid(model().double())[:, 1].tolist()


def multilabel() -> Graph:
    graph = nasty_graph()
    labels = torch.randint(0, 2, (60, 3), generator=torch.Generator().manual_seed(0)).float()
    return replace(graph, labels=labels, num_classes=3)


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=sage",),
        ("model=gcn", "model.residual=true"),
        ("model=gat",),
        ("model=sage_pool",),
        ("model=pyg",),
        ("model=mlp",),
    ],
    ids=" ".join,
)
def test_embeddings_are_the_rows_that_the_last_layer_reads(overrides: tuple[str, ...], tmp_path: Path) -> None:
    model = untrained(nasty_graph(), tmp_path, *SMALL, *overrides)
    rows = whole_embedding(model)
    assert rows.shape == (60, 12)
    listed = table_of(list(embedded(model, target_graph(model), lists=True)))
    assert listed.schema.field("embedding").type == pa.list_(pa.float32(), 12)
    assert np.array_equal(np.stack(listed["embedding"].to_numpy()), rows.numpy())
    flat = table_of(list(embedded(model, target_graph(model), lists=False)))
    assert flat.column_names == ["id", *(f"e_{number}" for number in range(12))]
    assert flat["e_7"].to_pylist() == rows[:, 7].tolist()


def whole_embedding(model: TrainedModel) -> torch.Tensor:
    """The embeddings, after a check that the last layer makes the logits of them."""
    rows = torch.cat(list(model.embeddings()))
    seen: list[torch.Tensor] = []
    last, kept = model.model.num_layers - 1, model.model.preactivated

    def watched(index: int, block, dropped, key) -> torch.Tensor:  # type: ignore[no-untyped-def]
        if index == last:
            places = torch.argsort(block.src_ids)
            seen.append(dropped[places])
        return kept(index, block, dropped, key)

    model.model.preactivated = watched  # type: ignore[method-assign]
    model()
    model.model.preactivated = kept  # type: ignore[method-assign]
    assert torch.equal(seen[0], rows)
    return rows


def test_a_model_of_one_layer_has_no_embeddings(tmp_path: Path) -> None:
    model = untrained(nasty_graph(), tmp_path, "model.layers=1")
    with pytest.raises(DataError, match="no hidden layer"):
        list(model.embeddings())


@pytest.mark.parametrize("embeddings", [False, True])
def test_outputs_stay_within_the_bound(embeddings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks have few edges, rows of hidden layers are in mapped files, and pieces of the table have few rows."""
    bound, width, mapped = 50_000, 12, []
    model = untrained(nasty_graph(300, 3000), tmp_path, *SMALL, f"train.eval_memory={bound}")
    reference = untrained(nasty_graph(300, 3000), tmp_path, *SMALL)
    original = Machines.mapped

    def counted(self: Machines, count: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        mapped.append((count, columns))
        return original(self, count, columns, dtype)

    monkeypatch.setattr(Machines, "mapped", counted)
    chunks = list(model.embeddings() if embeddings else model.outputs())
    assert mapped == [(300, width)] * (1 if embeddings else 2)
    first, most = 0, bound // 2 // (8 * 4 * 13)  # edges and vertices of a chunk: 8 copies of rows of 13 float32 columns
    for chunk in chunks:
        vertices_of_it = slice(first, first + chunk.shape[0])
        first += chunk.shape[0]
        cost = int((model.graph.in_degree[vertices_of_it] + 1).sum())
        assert cost <= most or chunk.shape[0] == 1
    assert first == 300 and len(chunks) > 10
    whole = torch.cat(list(reference.embeddings() if embeddings else reference.outputs()))
    assert torch.allclose(torch.cat(chunks), whole, atol=1e-5)


def test_pieces_of_a_table_have_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(tmp_path / "names", {"person": 20, "word": 40}, [])
    model = untrained(nasty_graph(), tmp_path / "names", *SMALL)
    whole = table_of(list(embedded(model, target_graph(model), lists=False)))
    monkeypatch.setattr(vertices, "_MOST_BYTES", 7 * 12 * 8)
    pieces = list(embedded(model, target_graph(model), lists=False))
    assert max(piece.num_rows for piece in pieces) == 7 and len(pieces) == 3 + 6
    assert table_of(pieces).equals(whole)
