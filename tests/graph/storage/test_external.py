from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.graph.build import build_graph
from gnnexp.graph.merging import DifferentWeightsError, MergeWeights
from gnnexp.graph.storage.external import EdgeRows, EdgeRules, write_csc, write_csc_with_data
from gnnexp.graph.storage.format import GraphWriter, open_graph


@pytest.mark.parametrize("data", [("types",), ("weights",), ("types", "weights")])
@given(
    seed=st.integers(0, 10**6),
    symmetrize=st.booleans(),
    loops=st.booleans(),
    merge=st.booleans(),
    buffer_edges=st.integers(1, 40),
    rule=st.sampled_from(["sum", "mean", "max", "min"]),
)
@settings(max_examples=25)
def test_edges_with_data_are_those_of_build_graph(
    data: tuple[str, ...],
    seed: int,
    symmetrize: bool,
    loops: bool,
    merge: bool,
    buffer_edges: int,
    rule: MergeWeights,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    draw = np.random.default_rng(seed)
    num_nodes, size = int(draw.integers(1, 9)), int(draw.integers(1, 60))
    ends = draw.integers(0, num_nodes, (2, size)).astype(np.int32)
    types = draw.integers(0, 3, size).astype(np.int32) if "types" in data else None
    weights = draw.random(size, np.float32) if "weights" in data else None

    def chunks() -> Iterator[EdgeRows]:
        for start in range(0, size, 7):
            part = slice(start, start + 7)
            yield EdgeRows(*ends[:, part], *(None if one is None else one[part] for one in (types, weights)))

    folder: Path = tmp_path_factory.mktemp("csc") / "graph"
    with GraphWriter(folder) as writer:
        write_csc_with_data(chunks, num_nodes, EdgeRules(symmetrize, loops, merge, rule), 64 * buffer_edges, writer)
        for name in ("train", "val", "test"):
            writer.put(name, np.empty(0, np.int64))
        writer.finish_graph(name="g", num_classes=0, notes=[], num_features=None)
    found = open_graph(folder)
    wanted = build_graph(
        *ends,
        num_nodes,
        types=types,
        weights=weights,
        symmetrize=symmetrize,
        self_loops="remove" if loops else "keep",
        duplicates="merge" if merge else "keep",
        merge_weights=rule,
        by_weight=True,
    )
    for here, there in (
        (found.indptr, wanted.indptr),
        (found.indices, wanted.indices),
        (found.edge_types, wanted.types),
        (found.edge_weights, wanted.weights),
    ):
        assert (here is None and there is None) or (here is not None and there is not None and here.equal(there))


@given(
    seed=st.integers(0, 10**6),
    symmetrize=st.booleans(),
    loops=st.booleans(),
    merge=st.booleans(),
    num_nodes=st.integers(0, 12),
    buffer_edges=st.sampled_from([1, 5, 20, 1000]),
    counts=st.sampled_from([1, 3, 99]),
)
@settings(max_examples=25)
def test_edges_are_those_of_build_graph_in_one_bucket_and_in_several(
    seed: int,
    symmetrize: bool,
    loops: bool,
    merge: bool,
    num_nodes: int,
    buffer_edges: int,
    counts: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    draw = np.random.default_rng(seed)
    size = int(draw.integers(0, 60)) if num_nodes else 0
    ends = draw.integers(0, max(1, num_nodes), (2, size)).astype(np.int32)

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (tuple(ends[:, start : start + 7]) for start in range(0, size, 7))

    folder: Path = tmp_path_factory.mktemp("csc") / "graph"
    with GraphWriter(folder) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnexp.graph.storage.external._COUNTS", counts)
        indptr, indices = write_csc(chunks, num_nodes, EdgeRules(symmetrize, loops, merge), 4 * buffer_edges, writer)
        for name in ("train", "val", "test"):
            writer.put(name, np.empty(0, np.int64))
        writer.finish_graph(name="g", num_classes=0, notes=[], num_features=None)
    found = open_graph(folder)
    wanted = build_graph(
        *ends,
        num_nodes,
        symmetrize=symmetrize,
        self_loops="remove" if loops else "keep",
        duplicates="merge" if merge else "keep",
    )
    assert found.indptr.equal(wanted.indptr) and found.indices.equal(wanted.indices)
    assert (indptr == wanted.indptr.numpy()).all() and (indices == wanted.indices.numpy()).all()


@given(seed=st.integers(0, 10**6), symmetrize=st.booleans(), buffer_edges=st.integers(1, 40))
@settings(max_examples=25)
def test_different_weights_are_counted_over_all_buckets(
    seed: int, symmetrize: bool, buffer_edges: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw = np.random.default_rng(seed)
    ends, weights = draw.integers(0, 5, (2, 30)).astype(np.int32), draw.integers(1, 3, 30).astype(np.float32)
    found: list[tuple[int, object, str]] = []
    rules = EdgeRules(symmetrize, merge=True)
    folder = tmp_path_factory.mktemp("csc") / "graph"
    for streamed in (True, False):
        with pytest.raises(DifferentWeightsError) as caught, GraphWriter(folder) as writer:
            if streamed:
                write_csc_with_data(lambda: iter([EdgeRows(*ends, None, weights)]), 5, rules, 64 * buffer_edges, writer)
            build_graph(*ends, 5, weights=weights, symmetrize=symmetrize)
        found.append((caught.value.merged.different, caught.value.merged.first, str(caught.value)))
    groups: dict[tuple[int, int], set[float]] = {}
    for u, v, weight in zip(*ends.tolist(), weights.tolist(), strict=True):
        groups.setdefault((u, v), set()).add(weight)
    assert found[0] == found[1] and found[0][0] == sum(len(one) > 1 for one in groups.values())
