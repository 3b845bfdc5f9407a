"""Means and spreads are those of the numbers, not of their float32, and do not depend on how rows come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_tables import load, text

from gnnexp.datasets.tables import scaling
from gnnexp.datasets.tables.scaling import Moments, scaled_features

START_MS = 1_700_000_000_000
TIMES = [START_MS + 1000 * row for row in range(50)]


def standardized(values: list[float]) -> np.ndarray:
    """By numpy, in float64."""
    column = np.array(values, np.float64)
    return (column - column.mean()) / column.std()


@given(
    rows=st.lists(st.tuples(*(st.floats(-1e12, 1e12) | st.just(np.nan) for _ in range(2))), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    block=st.integers(1, 9),
)
def test_pieces_do_not_matter(rows: list[tuple[float, float]], cuts: list[int], block: int) -> None:
    values, found = np.array(rows, np.float64), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "_BLOCK", 2 * block)
        for places in (sorted(cuts), []):
            moments = Moments(2, len(rows))
            for piece in np.split(values, [min(one, len(rows)) for one in places]):
                moments.add(piece)
            moments.merge()
            found.append(moments)
    assert np.array_equal(found[0].mean, found[1].mean) and np.array_equal(found[0].squares, found[1].squares)
    for column, present in enumerate(values[~np.isnan(values[:, one]), one] for one in (0, 1)):
        assert found[0].count[column] == present.size
        scale = np.abs(present).max(initial=1.0)
        assert found[0].mean[column] == pytest.approx(present.mean() if present.size else 0, abs=1e-12 * scale)
        assert found[0].spread(found[0].count)[column] == pytest.approx(
            present.std() if present.size else 0, abs=1e-7 * scale
        )


@pytest.mark.parametrize("empty", ["error", "mean", "zero"])
def test_missing_values_are_filled_before_columns_are_standardized(empty: scaling.Empty) -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    if empty != "error":
        values[1, 0] = np.nan
    whole = values.copy()
    whole[np.isnan(values)] = {"error": 0, "mean": 3.5, "zero": 0}[empty]
    expected = np.stack([standardized(whole[:, 0].tolist()), np.zeros(3)], 1)
    found = scaled_features(values, empty, standardize=True)
    assert found.dtype == np.float32 and np.allclose(found, expected, rtol=1e-6)
    assert np.array_equal(scaled_features(values, empty, standardize=False), whole.astype(np.float32))


@pytest.mark.parametrize("value", [0.1, -1 / 3, 1e30 / 7, 123456789.1])
@pytest.mark.parametrize("count", [1, 3, 7, 49, 5000])
def test_equal_values_become_zero(value: float, count: int) -> None:
    """The mean of equal values is rounded, so they would differ from it."""
    assert not scaled_features(np.full((count, 1), value), "error", standardize=True).any()
    filled = scaled_features(np.array([[value]] * count + [[np.nan]]), "mean", standardize=True)
    assert not filled.any()


def test_times_in_milliseconds_are_no_constant_column(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "nodes.csv", "id,at,plain", *(f"{row},{at},{row / 4}" for row, at in enumerate(TIMES)))
    graph = load(tmp_path, nodes="nodes.csv", standardize=True)
    assert isinstance(graph.features, torch.Tensor)
    assert np.allclose(graph.features[:, 0].numpy(), standardized(TIMES), rtol=1e-6)
    rounded = load(tmp_path, nodes="nodes.csv")
    said = [note for note in rounded.notes if "float32" in note]
    lost = "column at loses more than a thousandth of its spread in float32; dataset.standardize=true keeps it"
    assert said == [lost]
    text(tmp_path / "nodes.csv", "id,at,plain", *(f"{row},0.1,{row / 4}" for row in range(7)))
    equal = load(tmp_path, nodes="nodes.csv")
    assert not [note for note in equal.notes if "float32" in note], "equal values have no spread to lose"
    assert not [note for note in graph.notes if "float32" in note]


def test_real_labels_keep_what_float32_would_lose(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    for values, dtype in ((TIMES, torch.float64), ([0.1 * row for row in range(50)], torch.float32)):
        text(tmp_path / "nodes.csv", "id,y", *(f"{row},{value!r}" for row, value in enumerate(values)))
        graph = load(tmp_path, nodes="nodes.csv", label_kind="real")
        assert graph.labels is not None and graph.labels.dtype == dtype and graph.real_labels
        assert torch.equal(graph.labels, torch.tensor(values, dtype=dtype))
