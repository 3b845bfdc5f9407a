"""Predictions of a trained model as a table: a row for each vertex, with the ids of the user's own tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnexp.api.trained import TrainedModel
from gnnexp.datasets.reading.names import Names, ids_file, names_of
from gnnexp.graph.graph import Graph

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 18


def predicted(model: TrainedModel, graph: Graph | None, folder: Path, *, probabilities: bool
              ) -> Iterator[pa.RecordBatch]:
    """Rows `id`, `type` (with several types), `class`, `probability`, and with `probabilities` one column per class.

    A multi-label model has `probability` per class only. Rows are in the order of the vertices.

    Args:
        model: a trained model of a task of vertices.
        graph: the graph; None: that of the run.
        folder: folder of the prepared graph, with the ids of its vertices.
        probabilities: whether to write the probability of each class.
    """
    import pyarrow as pa

    names, several = names_of(folder), model.graph.multilabel
    logits = model(graph)
    num_nodes, count = logits.shape
    classes = list(names.classes) or [str(number) for number in range(count)]
    ids = _ids(folder, names, num_nodes)
    for start in range(0, num_nodes, _ROWS):
        values = logits[start : start + _ROWS].double()
        shares = torch.sigmoid(values) if several else torch.softmax(values, 1)
        columns: dict[str, Any] = dict(next(ids))
        if not several:
            best, place = shares.max(1)
            columns["class"] = pa.DictionaryArray.from_arrays(place.numpy().astype(np.int32), classes).cast(pa.string())
            columns["probability"] = best.numpy()
        if probabilities or several:
            columns |= {f"p_{name}": shares[:, number].numpy() for number, name in enumerate(classes)}
        yield pa.RecordBatch.from_pydict(columns)


def _ids(folder: Path, names: Names, num_nodes: int) -> Iterator[dict[str, Any]]:
    """`id`, and `type` with several types, in pieces of `_ROWS` vertices."""
    import pyarrow as pa
    from pyarrow import parquet

    if not names.types:
        for start in range(0, num_nodes, _ROWS):
            yield {"id": np.arange(start, min(start + _ROWS, num_nodes))}
        return
    tables = []
    for kind in names.types:
        found = parquet.read_table(folder / ids_file(kind), columns=["id"])
        kinds = pa.array([kind]).dictionary_encode().take(pa.array(np.zeros(found.num_rows, np.int32)))
        tables.append(found.append_column("type", kinds.cast(pa.string())))
    text = len({table.schema.field("id").type for table in tables}) > 1
    whole = pa.concat_tables([_as_text(table) if text else table for table in tables])
    for start in range(0, num_nodes, _ROWS):
        piece = whole.slice(start, _ROWS)
        wanted = ("id", "type") if len(names.types) > 1 else ("id",)
        yield {name: piece.column(name).combine_chunks() for name in wanted}


def _as_text(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    return table.set_column(0, "id", table.column("id").cast(pa.string()))
