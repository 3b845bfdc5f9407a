import itertools
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

Case = tuple[int, np.ndarray, np.ndarray, np.ndarray]
Loops = Literal["keep", "remove", "add"]
Doubles = Literal["merge", "keep"]


@st.composite
def edge_lists(draw: st.DrawFn) -> Case:
    num_nodes = draw(st.integers(1, 9))
    ids = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids, st.integers(0, 2)), max_size=60))
    array = np.array(edges, dtype=np.int64).reshape(-1, 3)
    return num_nodes, array[:, 0].copy(), array[:, 1].copy(), array[:, 2].copy()


def reference(
    case: Case, features: np.ndarray, symmetrize: bool, self_loops: Loops, duplicates: Doubles
) -> list[tuple[int, int, int, float]]:
    """The same by Python's sort: rows of (dst, src, type, feature). Merged edges have the sum of what was given."""
    num_nodes, src, dst, types = case
    edges = []
    for u, v, t, f in zip(src, dst, types, features, strict=True):
        if u == v and self_loops != "keep":
            continue
        edges.append((int(v), int(u), int(t), float(f), True))
        if symmetrize and u != v:
            edges.append((int(u), int(v), int(t), float(f), False))
    if self_loops == "add":
        edges += [(v, v, 0, 0.0, True) for v in range(num_nodes)]
    edges.sort(key=lambda edge: edge[:3])
    if duplicates == "keep":
        return [edge[:4] for edge in edges]
    merged = []
    for ends, group in itertools.groupby(edges, key=lambda edge: edge[:3]):
        rows = list(group)
        own = [edge[3] for edge in rows if edge[4]] or [edge[3] for edge in rows]
        merged.append((*ends, sum(own)))
    return merged


@settings(deadline=None, max_examples=60)
@given(edge_lists(), st.booleans(), st.sampled_from(["keep", "remove"]), st.sampled_from(["merge", "keep"]))
def test_typed_edges_with_features_match_a_plain_sort(
    case: Case, symmetrize: bool, self_loops: Loops, duplicates: Doubles
) -> None:
    num_nodes, src, dst, types = case
    features = np.arange(src.size, dtype=np.float32)
    indptr, indices, kinds, values, *_ = build_graph(
        src,
        dst,
        num_nodes,
        types=types,
        edge_features=features[:, None],
        symmetrize=symmetrize,
        self_loops=self_loops,
        duplicates=duplicates,
        merge_weights="sum",
    )
    expected = reference(case, features, symmetrize, self_loops, duplicates)
    rows = np.repeat(np.arange(num_nodes), np.diff(indptr.numpy()))
    found = list(zip(rows.tolist(), indices.tolist(), kinds.tolist(), values[:, 0].tolist(), strict=True))
    assert found == expected


@settings(deadline=None, max_examples=60)
@given(edge_lists(), st.booleans(), st.sampled_from(["keep", "remove", "add"]), st.sampled_from(["merge", "keep"]))
def test_plain_edges_match_a_plain_sort(case: Case, symmetrize: bool, self_loops: Loops, duplicates: Doubles) -> None:
    num_nodes, src, dst, _ = case
    zeros = np.zeros(src.size)
    arrays = build_graph(src, dst, num_nodes, symmetrize=symmetrize, self_loops=self_loops, duplicates=duplicates)
    expected = reference((num_nodes, src, dst, zeros), zeros, symmetrize, self_loops, duplicates)
    rows = np.repeat(np.arange(num_nodes), np.diff(arrays.indptr.numpy()))
    assert list(zip(rows.tolist(), arrays.indices.tolist(), strict=True)) == [edge[:2] for edge in expected]
    assert arrays.indices.dtype.itemsize == 4
    assert arrays.types is None
    assert arrays.edge_features is None


def test_long_rows_and_any_integer_dtype() -> None:
    generator = np.random.default_rng(0)
    src = generator.integers(0, 2000, 40_000).astype(np.uint16)
    dst = generator.integers(0, 3, 40_000).astype(np.int32)
    arrays = build_graph(src, dst, 2000)
    pairs = np.unique(np.stack([dst, src], axis=1).astype(np.int64), axis=0)
    graph = Graph(arrays.indptr, arrays.indices)
    assert np.array_equal(graph.destinations().numpy(), pairs[:, 0])
    assert np.array_equal(graph.indices.numpy(), pairs[:, 1])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_inverse_relations_of_any_integer_dtype(kind: type[np.integer]) -> None:
    last = min(np.iinfo(kind).max, 2**30 - 1)
    types = np.array([0, last], kind)
    arrays = build_graph(
        np.array([0, 1], kind), np.array([1, 2], kind), 3, types=types, symmetrize=True, num_relations=int(last) + 1
    )
    assert arrays.types is not None and arrays.types.dtype.itemsize == 4
    assert sorted(arrays.types.tolist()) == [0, last, last + 1, 2 * last + 1]
    assert types.tolist() == [0, last]


def test_inverse_relations_need_room_for_their_numbers() -> None:
    edges = np.array([0, 1]), np.array([1, 2])
    with pytest.raises(DataError, match=r"edge types in 0\.\.2") as error:
        build_graph(*edges, 3, types=np.array([0, 3]), symmetrize=True, num_relations=3, key="edges.npy")
    assert "types 0..3" in str(error.value)
    with pytest.raises(DataError, match="at most 2\\^30 types"):
        build_graph(*edges, 3, types=np.array([0, 2**30]), symmetrize=True, num_relations=2**30 + 1)
    assert build_graph(*edges, 3, types=np.array([0, 3]), num_relations=3).types is not None, "no reverses are added"


def test_no_edges() -> None:
    empty = np.empty(0, np.int64)
    arrays = build_graph(empty, empty, 3, symmetrize=True)
    assert arrays.indptr.tolist() == [0, 0, 0, 0]
    assert build_graph(empty, empty, 3, self_loops="add").indices.tolist() == [0, 1, 2]


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(DataError) as error:
        build_graph(np.array([0, 7]), np.array([-1, 2]), 5, types=np.array([0, -2]), key="edges.tsv")
    text = str(error.value)
    assert len(error.value.problems) == 3
    assert "edges.tsv" in text
    assert "0..4" in text
    assert "source ids 0..7, the first wrong one in row 1" in text


def test_lengths_must_agree() -> None:
    with pytest.raises(DataError, match="one length"):
        build_graph(np.array([0, 1]), np.array([1]), 2)


def test_loops_cannot_be_added_where_they_would_have_no_type() -> None:
    with pytest.raises(ConfigError, match="self_loops"):
        build_graph(np.array([0]), np.array([1]), 2, types=np.array([0]), self_loops="add")


def test_weights_go_with_their_edges() -> None:
    """Reverses have that of their edge, merged edges that of the rule."""
    src, dst, weights = np.array([2, 0, 2, 1]), np.array([0, 1, 0, 1]), np.array([1.5, 2, 3, 4])
    kept = build_graph(src, dst, 3, duplicates="keep", weights=weights)
    assert kept.indices.tolist() == [2, 2, 0, 1] and kept.weights is not None
    assert kept.weights.dtype == torch.float32 and kept.weights.tolist() == [1.5, 3, 2, 4]
    ordered = build_graph(src[::-1], dst[::-1], 3, duplicates="keep", weights=weights[::-1], by_weight=True)
    assert ordered.weights is not None and ordered.weights.equal(kept.weights)
    both = build_graph(src, dst, 3, symmetrize=True, weights=weights, merge_weights="min")
    assert both.indices.tolist() == [1, 2, 0, 1, 0] and both.weights is not None
    assert both.weights.tolist() == [2, 1.5, 2, 4, 1.5]
    inverse = build_graph(
        src, dst, 3, symmetrize=True, num_relations=1, types=np.zeros(4, np.int64), weights=weights, merge_weights="min"
    )
    assert inverse.weights is not None and sorted(inverse.weights.tolist()) == [1.5, 1.5, 2, 2, 4, 4]
    with pytest.raises(DataError, match=r"1 edge is there more than once with different weights \(2 -> 0: 1.5 to 3\)"):
        build_graph(src, dst, 3, weights=weights)
    with pytest.raises(DataError, match="the weights of 1 merged edges are too large for float32"):
        build_graph(src, dst, 3, weights=np.float32([3e38, 1, 3e38, 1]), merge_weights="sum")
    with pytest.raises(ConfigError, match="weighted"):
        build_graph(src, dst, 3, self_loops="add", weights=weights)
    with pytest.raises(DataError, match="one length"):
        build_graph(src, dst, 3, weights=weights[1:])
