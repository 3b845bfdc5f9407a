"""Labels of tables may be real numbers, which are never taken for classes or classes for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from own_tables import load, text
from pyarrow import parquet

from gnnexp.errors import DataError


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1.5", "", "-1", "3e3"], "auto", [1.5, None, -1.0, 3000.0]),
        (["1", "", "-1", "3"], "real", [1, None, -1, 3]),
        (["1.0", "nan", "-1", "3"], "real", [1, None, -1, 3]),
    ],
)
def test_labels_can_be_real_numbers(values: list[str], kind: Any, expected: list[float | None], tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "n.csv", "id,y", *(f"{number},{value}" for number, value in enumerate(values)))
    graph = load(tmp_path, nodes="n.csv", label_kind=kind)
    assert graph.labels is not None and graph.real_labels and graph.num_classes == 0
    wanted = torch.tensor([float("nan") if one is None else one for one in expected])
    assert torch.equal(graph.labels.nan_to_num(7e7), wanted.nan_to_num(7e7))
    assert sorted(torch.cat([graph.splits.train, graph.splits.val, graph.splits.test]).tolist()) == [0, 2, 3]


def test_labels_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "n.csv", "id,y", "0,1", "1,2.5", "2,1e300")
    with pytest.raises(DataError, match=r"n\.csv, line 4, column y=1e\+300: is no finite number of float32"):
        load(tmp_path, nodes="n.csv")
    assert load(tmp_path, nodes="n.csv", label_kind="class").num_classes == 3, "classes of a text are texts"
    columns = {"id": [0, 1, 2], "y": [1.0, 2.5, 3.0]}
    parquet.write_table(pa.table(columns), tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"n\.parquet, row 2, column y=2\.5: is no whole number"):
        load(tmp_path, nodes="n.parquet", label_kind="class")
    text(tmp_path / "n.csv", "id,y", "0,red", "1,2.5")
    with pytest.raises(DataError, match="is no column of numbers"):
        load(tmp_path, nodes="n.csv", label_kind="real")
