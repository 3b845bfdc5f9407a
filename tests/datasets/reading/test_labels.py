"""Labels that were never renumbered, and labels beyond what float32 holds."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.reading.features import as_labels, count_classes, empty_classes
from gnnexp.errors import DataError


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 3, 3, 9], [5], [-1, 8, 0, 2], [1], [-1, -1], [], [0, 0, 40]])
def test_empty_classes_are_those_that_no_vertex_has(labels: list[int]) -> None:
    found = np.array(labels, np.int64)
    absent = sorted(set(range(max(labels, default=-1) + 1)) - set(labels))
    more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
    assert empty_classes(found) == ", ".join(map(str, absent[:5])) + more


def test_a_label_of_two_milliards_takes_no_memory() -> None:
    tracemalloc.start()
    found = empty_classes(np.array([3, 2**31 - 1, 0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == f"1, 2, 4, 5, 6 and {2**31 - 3 - 5} more" and peak < 1 << 20


@pytest.mark.parametrize("kind", ["npy", "text"])
@pytest.mark.parametrize("label", [16_777_217, 50_000_000, 2**31 - 1])
def test_whole_numbers_beyond_float32_stay_what_they_are(kind: str, label: int, tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text("0\t1\n1\t2\n")
    if kind == "npy":
        np.save(tmp_path / "labels.npy", np.array([0, label, -1]))
    else:
        (tmp_path / "labels.txt").write_text(f"0\n{label}\nnan\n")
    graph = EdgeList(path=str(tmp_path), labels=f"labels.{'npy' if kind == 'npy' else 'txt'}").load()
    assert graph.labels is not None and graph.labels.tolist() == [0, label, -1]
    assert graph.num_classes == label + 1


@pytest.mark.parametrize(
    "values, word",
    [
        ([0.5], "fractions"),
        ([np.inf], "below 2"),
        ([-np.inf], "below 2"),
        ([2.0**31], "below 2"),
        ([1e300], "below 2"),
    ],
)
def test_other_numbers_are_no_classes(values: list[float], word: str) -> None:
    with pytest.raises(DataError, match=rf"labels of labels\.txt=.*{word}"):
        as_labels(np.array(values)[:, None], Path("labels.txt"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int16, np.bool_, np.float16, np.float64, ">i8"])
def test_classes_of_any_type_of_numbers(dtype: object) -> None:
    labels = as_labels(np.array([[1], [0]], dtype), Path("labels.npy"))
    assert labels is not None and labels.dtype == np.int64 and labels.tolist() == [1, 0] and count_classes(labels) == 2


def test_unsigned_labels_of_64_bits_are_refused() -> None:
    with pytest.raises(DataError, match="below 2"):
        as_labels(np.array([[2**64 - 1]], np.uint64), Path("labels.npy"))
