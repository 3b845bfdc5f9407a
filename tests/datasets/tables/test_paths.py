"""What a file's path says is not in the data: folders named `column=value`, as Hydra and Hive name them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from gnnexp.datasets.tables.dataset import Tables

NODES = {"id": [10, 20, 30, 40], "f": [0.5, 0.2, 0.1, 0.3], "label": ["u", "v", "u", "v"],
         "part": ["train", "val", "test", "train"]}
EDGES = {"source": [10, 20, 30], "destination": [20, 30, 40]}
FOLDERS = ["f=100", "label=9", "weight=2", "seed=3", "part=test", "source=1", "relation=5", "id=100", "month=1",
           "seed=3/label=9/tables", "label=__HIVE_DEFAULT_PARTITION__"]


def write(folder: Path, kind: str) -> None:
    folder.mkdir(parents=True)
    for name, columns in (("nodes", NODES), ("edges", EDGES)):
        table, file = pa.table(columns), folder / f"{name}.{kind}"
        if kind == "csv":
            rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            file.write_text("\n".join(rows) + "\n")
        elif kind == "jsonl":
            file.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        elif kind == "parquet":
            parquet.write_table(table, file)
        else:
            feather.write_feather(table, file, compression="uncompressed")


def load(folder: Path, kind: str) -> Tables:
    return Tables(path=str(folder), nodes=f"nodes.{kind}", edges=f"edges.{kind}", split="column", split_column="part")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_no_column(tmp_path: Path, kind: str, name: str) -> None:
    write(tmp_path / name, kind)
    graph = load(tmp_path / name, kind).load()
    assert graph.features is not None and graph.labels is not None
    assert np.array_equal(np.asarray(graph.features), np.float32([[0.5], [0.2], [0.1], [0.3]]))
    assert graph.labels.tolist() == [0, 1, 0, 1] and graph.num_classes == 2
    assert graph.edge_weights is None and graph.edge_types is None
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0, 3], [1], [2]]
