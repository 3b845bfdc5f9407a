"""Features by type: one linear layer of them is a projection, with a bias, for each type of vertices."""

from __future__ import annotations

import numpy as np
import pytest

from gnnexp.datasets.reading.features import features_by_type, typed_rows
from gnnexp.errors import DataError
from gnnexp.graph.sparse import SparseRows


def rows_and_types() -> tuple[np.ndarray, np.ndarray]:
    """Type 2 has no features, type 1 no vertices; a vertex of type 0 has zeros only."""
    generator = np.random.default_rng(0)
    types = np.array([0, 2, 3, 0, 2, 3, 0])
    rows = generator.normal(size=(7, 5)).astype(np.float32)
    rows[types == 2] = rows[3] = 0
    return rows, types


def test_a_linear_layer_projects_each_type_by_itself() -> None:
    rows, types = rows_and_types()
    generator = np.random.default_rng(1)
    weights = {kind: generator.normal(size=(4, 5)) for kind in (0, 3)}
    biases = {kind: generator.normal(size=4) for kind in (0, 2, 3)}
    expected = np.stack(
        [biases[kind] + (weights[kind] @ row if kind in weights else 0) for row, kind in zip(rows, types, strict=True)]
    )
    # What a layer learns of: biases side by side, then the matrices of the types that have features.
    layer = np.column_stack([*biases.values(), *weights.values()])
    assert np.allclose(features_by_type(rows, types) @ layer.T, expected)


@pytest.mark.parametrize("sparse", [True, False])
def test_sparse_rows_hold_what_a_vertex_has(sparse: bool) -> None:
    rows, types = rows_and_types()
    wide = typed_rows(rows, types, sparse)
    assert wide.shape == (7, 3 + 2 * 5)
    assert isinstance(wide, SparseRows) == sparse
    if isinstance(wide, SparseRows):
        assert (wide.indptr[1:] - wide.indptr[:-1]).tolist() == [6, 1, 6, 1, 1, 6, 6]


def test_without_features_the_type_is_left() -> None:
    assert features_by_type(None, np.array([4, 0, 4])).toarray().tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(DataError, match="features_by_type"):
        typed_rows(np.ones((3, 2)), None, "auto")
