from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import get_num_threads, set_num_threads

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated import synthetic
from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.errors import ConfigError, DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.validate import validate_graph
from gnnexp.kernels.graph.generate import scrambled, unit_rows

Synthetic = Dcsbm | Rmat
KINDS: list[type[Synthetic]] = [Dcsbm, Rmat]
kinds = pytest.mark.parametrize("kind", KINDS)
ARRAYS = ("indptr", "indices", "features", "labels")


def make(kind: type[Any], **options: object) -> Synthetic:
    made: Synthetic = kind(**{"num_nodes": 3000, "num_edges": 60_000, **options})
    return made


def same(first: Graph, second: Graph) -> bool:
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in ARRAYS) and all(
        torch.equal(getattr(first.splits, name), getattr(second.splits, name)) for name in ("train", "val", "test")
    )


@kinds
def test_graph_is_valid_simple_and_undirected(kind: type[Synthetic]) -> None:
    graph = make(kind).load()
    assert validate_graph(graph, name="x") == []
    src, dst = graph.indices.long(), graph.destinations().long()
    assert not (src == dst).any()
    forward = src * graph.num_nodes + dst
    assert torch.equal(forward.unique(), (dst * graph.num_nodes + src).unique())
    assert forward.unique().numel() == graph.num_edges
    assert graph.indices.dtype == torch.int32


@kinds
def test_sizes_are_met(kind: type[Synthetic]) -> None:
    graph = make(kind, num_features=7, num_classes=5, train=0.5, val=0.25, test=0.1).load()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (3000, 7, 5)
    assert graph.num_edges == pytest.approx(60_000, rel=0.015)
    assert [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [1500, 750, 300]
    assert graph.labels is not None
    assert (graph.labels.bincount(minlength=5) > 400).all()


@kinds
def test_neither_chunks_nor_threads_nor_the_disk_change_the_graph(
    kind: type[Synthetic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make(kind).load()
    # A buffer of 7,000 edges: some ten buckets.
    stored = make(kind, buffer_bytes=28_000).generate(tmp_path / "buckets")
    assert same(stored, expected)
    monkeypatch.setattr(synthetic, "_CHUNK", 1003)
    monkeypatch.setattr(synthetic, "_FEATURE_BYTES", 1000)
    threads = get_num_threads()
    set_num_threads(1)
    try:
        assert same(make(kind).load(), expected)
    finally:
        set_num_threads(threads)
    assert [path.name for path in tmp_path.iterdir()] == ["buckets"]


@kinds
def test_a_buffer_smaller_than_any_row_still_works(kind: type[Synthetic], tmp_path: Path) -> None:
    small = {"num_nodes": 100, "num_edges": 1000}
    assert same(make(kind, buffer_bytes=1, **small).generate(tmp_path / "one"), make(kind, **small).load())


# Written down once: the same config is the same graph on any machine.
FINGERPRINTS = {
    Dcsbm: (59996, 459754647295, 15977927, -1.2545539140701294),
    Rmat: (59920, 436839537040, 15977927, -1.2545539140701294),
}


@kinds
def test_the_same_config_is_the_same_graph_everywhere(kind: type[Synthetic]) -> None:
    assert fingerprint(make(kind).load()) == FINGERPRINTS[kind]


def fingerprint(graph: Graph) -> tuple[int, int, int, float]:
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    weights = torch.arange(1, graph.num_edges + 1) % 9973
    return (
        graph.num_edges,
        int((graph.indices * weights).sum()),
        int((graph.labels * torch.arange(graph.num_nodes)).sum()),
        float(graph.features[17, 3]),
    )


@pytest.mark.parametrize("inverses", [True, False])
def test_relations_are_drawn_by_pair_and_leave_the_rest_alone(tmp_path: Path, inverses: bool) -> None:
    plain, options = make(Rmat).load(), {"relations": 9, "inverse_relations": inverses}
    typed, stored = make(Rmat, **options).load(), make(Rmat, **options).generate(tmp_path / "typed")
    assert same(typed, plain) and plain.edge_types is None and validate_graph(typed, name="x") == []
    assert typed.edge_types is not None and stored is not None and stored.edge_types is not None
    assert torch.equal(typed.edge_types, stored.edge_types) and typed.num_relations == 9 * (1 + inverses)
    numbers = typed.edge_types.numpy() + 1
    types = scipy.sparse.csc_array((numbers, typed.indices.numpy(), typed.indptr.numpy())).todense()
    lower, upper = np.tril(types), np.triu(types).T  # edges from a higher id are above the diagonal of the columns
    assert np.array_equal(lower - 9 * (lower > 0) if inverses else lower, upper)
    share = np.bincount(upper[upper > 0] - 1, minlength=9) / (upper > 0).sum()
    assert np.allclose(share, np.diff(np.sqrt(np.arange(10) / 9)), atol=0.01)


@pytest.mark.parametrize("count", [0, -1, 1 << 21])
def test_as_many_relations_as_there_can_be(count: int) -> None:
    with pytest.raises(ConfigError, match="relations"):
        make(Rmat, relations=count)


@kinds
def test_seeds_and_options_give_other_graphs_and_keys(kind: type[Synthetic]) -> None:
    first, second = make(kind), make(kind, seed=1)
    assert not torch.equal(first.load().indices[:1000], second.load().indices[:1000])
    others = [make(kind, seed=1), make(kind, locality=0.1), make(kind, num_nodes=3001)]
    assert len({first.key(), *(other.key() for other in others)}) == 4
    assert first.key() == make(kind, buffer_bytes=123).key()


@kinds
def test_degrees_are_skewed(kind: type[Synthetic]) -> None:
    degrees = make(kind, num_nodes=20_000, num_edges=400_000, num_features=1, num_classes=4).load().in_degree.float()
    top = degrees.sort(descending=True).values[:200].sum() / degrees.sum()
    assert top > 0.04, "the first percent holds several times its share"
    assert degrees.max() > 15 * degrees.mean()


def test_cap_and_no_skew() -> None:
    options: dict[str, Any] = {"num_nodes": 20_000, "num_edges": 400_000, "num_features": 1, "locality": 0.0}
    even = Dcsbm(skew=1, **options).load().in_degree.float()
    assert even.max() < 3 * even.mean()
    capped = Dcsbm(max_degree_ratio=5, **options).load().in_degree.float()
    assert capped.max() < 7 * capped.mean()


def clustering(graph: Graph) -> float:
    """Mean clustering coefficient of the vertices (Watts & Strogatz)."""
    values = np.ones(graph.num_edges, np.int64)
    shape = (graph.num_nodes, graph.num_nodes)
    matrix = scipy.sparse.csr_array((values, graph.indices.numpy(), graph.indptr.numpy()), shape)
    closed = (matrix @ matrix).multiply(matrix).sum(axis=1)
    degrees = graph.in_degree.numpy()
    return float((closed / np.maximum(degrees * (degrees - 1), 1)).mean())


@kinds
def test_locality_closes_triangles(kind: type[Synthetic]) -> None:
    options = {"num_nodes": 4_000, "num_edges": 60_000, "num_features": 1}
    found = [clustering(make(kind, locality=locality, **options).load()) for locality in (0.0, 0.5, 0.9)]
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.15


@kinds
def test_labels_can_be_learnt_better_from_neighbours(kind: type[Synthetic]) -> None:
    """Nearest class centroid of the training vertices, on own features and on the mean over neighbours."""
    graph = make(kind, num_nodes=5000, num_edges=100_000).load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    sums = torch.zeros_like(graph.features)
    sums.index_add_(0, graph.destinations().long(), graph.features[graph.indices.long()])
    means = sums / graph.in_degree.clamp(min=1)[:, None]
    accuracy = []
    for inputs in (graph.features, graph.features + means * 4):
        train, test = graph.splits.train, graph.splits.test
        centroids = torch.zeros(graph.num_classes, inputs.shape[1])
        centroids.index_add_(0, graph.labels[train], inputs[train])
        centroids /= graph.labels[train].bincount()[:, None]
        guesses = torch.cdist(inputs[test], centroids).argmin(1)
        accuracy.append(float((guesses == graph.labels[test]).float().mean()))
    chance = 1 / graph.num_classes
    assert accuracy[0] > 2 * chance
    assert accuracy[1] > accuracy[0] + 0.1


def test_homophily_is_what_was_asked_for() -> None:
    graph = make(Dcsbm, homophily=0.8, locality=0.0, skew=1, label_noise=0.0, num_edges=20_000).load()
    assert graph.labels is not None
    same_label = graph.labels[graph.indices.long()] == graph.labels[graph.destinations().long()]
    assert float(same_label.float().mean()) == pytest.approx(0.8 + 0.2 / 8, abs=0.02)


def test_label_noise_is_what_was_asked_for() -> None:
    clean, noisy = make(Dcsbm, label_noise=0.0).load(), make(Dcsbm, label_noise=0.4).load()
    assert clean.labels is not None
    assert noisy.labels is not None
    assert torch.equal(clean.indices, noisy.indices)
    assert float((clean.labels != noisy.labels).float().mean()) == pytest.approx(0.4 * 7 / 8, abs=0.04)


def test_features_are_centroid_plus_unit_noise() -> None:
    graph = make(Dcsbm, num_nodes=20_000, num_features=16, signal=3.0, label_noise=0.0).load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    rows = graph.features[graph.labels == 2]
    assert float(rows.mean(0).norm()) == pytest.approx(3, abs=0.15)
    noise = rows - rows.mean(0)
    assert torch.allclose(noise.std(0), torch.ones(16), atol=0.06)
    correlations = torch.corrcoef(noise.T) - torch.eye(16)
    assert float(correlations.abs().max()) < 0.1
    assert float((noise**4).mean()) == pytest.approx(2.7, abs=0.1)  # four uniforms: 3 - 1.2 / 4


@settings(max_examples=30)
@given(st.integers(1, 5000), st.integers(0, 2**63))
def test_vertex_order_is_a_permutation(count: int, key: int) -> None:
    order = scrambled(np.uint64(key), count)
    assert np.array_equal(np.sort(order), np.arange(count))


def test_vertex_order_has_no_memory_of_the_latent_one() -> None:
    order = scrambled(np.uint64(5), 100_000).astype(np.float64)
    assert abs(np.corrcoef(order, np.arange(order.size))[0, 1]) < 0.02
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02
    steps = np.diff(order) % 2
    assert 0.48 < steps.mean() < 0.52


@kinds
def test_latent_ids_are_near_where_vertices_are(kind: type[Any]) -> None:
    options = {"num_nodes": 2000, "num_edges": 20_000, "num_classes": 4, "locality": 1.0}
    for ids in ("latent", "scrambled"):
        graph = kind(**options, ids=ids).load()
        steps = (graph.indices - torch.repeat_interleave(torch.arange(2000), graph.indptr.diff())).abs()
        # Local edges reach as many places as a vertex has of them, 10; those around the end of a ring are far by id.
        assert (steps.median() <= 10) == (ids == "latent")
        assert graph.splits.train.numel() == 1200
    with pytest.raises(ConfigError, match="scrambled or latent"):
        build({"_target_": f"{kind.__module__}.{kind.__name__}", "ids": "sorted"}, Dataset, "dataset")


def test_directions_have_the_given_length() -> None:
    rows = unit_rows(np.uint64(1), 5, 32, 2.5)
    assert np.allclose(np.linalg.norm(rows, axis=1), 2.5, atol=1e-5)


@kinds
@pytest.mark.parametrize(
    "shape",
    [
        "arxiv_like",
        "products_like",
        "papers_like",
        "friendster_like",
        "orkut_like",
        "it2004_like",
        "mag_like",
        "mag_lsc_like",
        "flickr_like",
        "yelp_like",
        "amazon_like",
    ],
)
def test_shapes_keep_the_average_degree(kind: type[Any], shape: str) -> None:
    full, tenth = kind(shape=shape).sizes, kind(shape=shape, scale=0.1).sizes
    assert tenth.num_nodes == pytest.approx(full.num_nodes / 10, rel=1e-4)
    assert tenth.num_edges / tenth.num_nodes == pytest.approx(full.num_edges / full.num_nodes, rel=1e-3)
    assert (tenth.num_features, tenth.num_classes) == (full.num_features, full.num_classes)


def test_scaled_shape_meets_its_sizes() -> None:
    graph = Dcsbm(shape="products_like", scale=0.004).load()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (9796, 100, 47)
    assert graph.num_edges == pytest.approx(494_873, rel=0.015)
    assert graph.splits.train.numel() == round(0.08 * 9796)


@kinds
def test_counts_of_the_largest_shape_need_no_32_bit_integers(kind: type[Any]) -> None:
    dataset = kind(shape="friendster_like")
    generator = dataset.generator()
    assert generator.num_candidates() > 1_806_067_135
    src, dst = np.empty(1000, np.int32), np.empty(1000, np.int32)
    generator.model.fill(7, 2**33, np.empty(0, np.int32), src, dst)
    for ids in (src, dst):
        assert 0 <= ids.min() <= ids.max() < 65_608_366
    assert src.max() > 30_000_000


@kinds
def test_what_does_not_fit_in_memory_is_refused_before_it_is_drawn(kind: type[Any]) -> None:
    with pytest.raises(DataError, match="memory"):
        kind(shape="papers_like", scale=10).load()


@kinds
def test_impossible_sizes_are_all_named(kind: type[Any]) -> None:
    with pytest.raises(ConfigError) as error:
        kind(num_nodes=100, num_edges=10**9, num_classes=90, num_features=0)
    assert len(error.value.problems) == 3
    for options in ({"scale": 0.0}, {"scale": float("nan")}, {"locality": 1.5}, {"num_nodes": 2**31}, {"train": 2.0}):
        with pytest.raises(ConfigError):
            kind(**options)


def test_more_edges_than_the_skew_allows() -> None:
    with pytest.raises(ConfigError, match="at most about"):
        make(Rmat, num_nodes=200, num_edges=9000, locality=0.0, num_classes=2, a=0.9, b=0.04, c=0.04).load()


def test_options_of_each_kind() -> None:
    for options in ({"skew": 0}, {"communities": 3}, {"homophily": -0.1}, {"max_degree_ratio": 0.5}):
        with pytest.raises(ConfigError):
            make(Dcsbm, **options)
    with pytest.raises(ConfigError, match="add up"):
        make(Rmat, a=0.5, b=0.5, c=0.5)
    assert make(Dcsbm, communities=24).load().num_classes == 8
