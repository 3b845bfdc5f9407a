from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba import get_num_threads, set_num_threads

from gnnexp.datasets.generated.configuration import Configuration
from gnnexp.datasets.generated.fits import FITS
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.validate import validate_graph

ARRAYS = ("indptr", "indices", "features", "labels")
forms = pytest.mark.parametrize(
    "options", [{}, {"ids": "scrambled"}, {"directed": True, "zeros": 0.2}, {"block_sizes": [], "shares": [1]}]
)


def make(**options: Any) -> Configuration:
    sizes = {"num_nodes": 3000, "num_edges": 60_000, "block_sizes": [100, 500], "shares": [0.2, 0.5, 0.3]}
    return Configuration(**{**sizes, "max_degree": 300, "num_features": 4, **options})


def same(first: Graph, second: Graph) -> bool:
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in ARRAYS) and all(
        torch.equal(getattr(first.splits, name), getattr(second.splits, name)) for name in ("train", "val", "test")
    )


def adjacency(graph: Graph) -> np.ndarray:
    """`[V, V]` number of edges from a column to a row."""
    counts = np.zeros((graph.num_nodes, graph.num_nodes), np.int32)
    np.add.at(counts, (graph.destinations().numpy(), graph.indices.numpy()), 1)
    return counts


@forms
def test_the_graph_is_valid_and_has_exactly_the_drawn_degrees(options: dict[str, Any]) -> None:
    dataset = make(**options)
    graph, edges = dataset.load(), dataset.edges()
    assert validate_graph(graph, name="x") == []
    degrees = np.diff(edges.bounds).sum(0)
    assert np.array_equal(graph.in_degree.numpy(), degrees[edges.places()])
    assert np.array_equal(np.sort(edges.places()), np.arange(3000))
    assert degrees.mean() == pytest.approx(20, abs=4 * degrees.std() / 3000**0.5)
    assert degrees.max() <= 300


@pytest.mark.parametrize("ids", ["latent", "scrambled"])
def test_undirected_edges_have_both_directions(ids: str) -> None:
    counts = adjacency(make(ids=ids).load())
    assert np.array_equal(counts, counts.T)
    simple = adjacency(make(ids=ids, simple=True).load())
    expected = np.minimum(counts, 1)
    np.fill_diagonal(expected, 0)
    assert np.array_equal(simple, expected)


def test_notes_count_loops_and_repetitions() -> None:
    multi, simple = make().load(), make(simple=True).load()
    counts = adjacency(multi)
    loops = np.trace(counts)
    parallel = multi.num_edges - loops - (counts > 0).sum() + (np.diag(counts) > 0).sum()
    assert f"{loops} self loops and {parallel} repetitions of edges are part" in multi.notes[1]
    assert f"{loops} self loops and {parallel} repetitions of edges were dropped" in simple.notes[1]
    assert simple.num_edges == multi.num_edges - loops - parallel


@forms
def test_edges_stay_in_their_blocks(options: dict[str, Any]) -> None:
    edges = make(**{**options, "block_sizes": [100, 500], "shares": [0.5, 0.5, 0]}).edges()
    graph = make(**{**options, "block_sizes": [100, 500], "shares": [0.5, 0.5, 0]}).load()
    places = edges.places()
    src, dst = places[graph.indices.numpy()], places[graph.destinations().numpy()]
    assert (src // 500 == dst // 500).all()
    assert 0.5 < (src // 100 == dst // 100).mean() < 0.7, "half of the edges, and one in five of the others"


def test_out_degrees_follow_the_weights_and_in_degrees_their_share_of_zeros() -> None:
    dataset = make(directed=True, zeros=0.3, sigma_out=1.5, correlation=0.5, block_sizes=[], shares=[1])
    graph, edges = dataset.load(), dataset.edges()
    assert edges.weights is not None
    expected = np.diff(edges.weights) / edges.weights[-1] * graph.num_edges
    assert np.abs(graph.out_degree.numpy() - expected).max() < 1, "rounded up or down"
    assert (graph.in_degree == 0).double().mean() == pytest.approx(0.3, abs=4 * 0.5 / 3000**0.5)
    logs = np.log(np.maximum(graph.in_degree.numpy(), 1))[graph.in_degree > 0]
    weights = np.log(np.diff(edges.weights))[graph.in_degree > 0]
    assert np.corrcoef(logs, weights)[0, 1] == pytest.approx(0.5, abs=0.1)


@forms
def test_any_slice_is_that_slice_of_the_whole(options: dict[str, Any]) -> None:
    edges = make(**options).edges()
    indptr = edges.indptr()
    _, whole = edges.rows(indptr, 0, 3000)
    for first, last in ((0, 1), (17, 1234), (2999, 3000), (5, 5)):
        bounds, part = edges.rows(indptr, first, last)
        assert np.array_equal(part, whole[indptr[first] : indptr[last]])
        assert np.array_equal(bounds, indptr[first : last + 1] - indptr[first])


@forms
def test_neither_chunks_nor_threads_change_the_graph(options: dict[str, Any]) -> None:
    expected, threads = make(**options).load(), get_num_threads()
    set_num_threads(1)
    try:
        for num_bytes in (1, 16 * 777):
            assert same(make(**options, buffer_bytes=num_bytes).load(), expected)
            simple = make(**options, buffer_bytes=num_bytes, simple=True).load()
            assert same(simple, make(**options, simple=True).load())
    finally:
        set_num_threads(threads)


# Written down once: the same configuration is the same graph on any machine.
FINGERPRINTS = {"undirected": (60856, 449084848026), "directed": (60856, 448773563993)}


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_the_same_config_is_the_same_graph_everywhere(kind: str) -> None:
    graph = make(directed=kind == "directed", ids="scrambled").load()
    weights = torch.arange(1, graph.num_edges + 1) % 9973
    assert (graph.num_edges, int((graph.indices * weights).sum())) == FINGERPRINTS[kind]


def test_labels_are_communities() -> None:
    dataset = make(num_classes=4, label_noise=0.0, ids="scrambled")
    graph = dataset.load()
    assert graph.labels is not None
    assert np.array_equal(graph.labels.numpy(), dataset.edges().places() // 500 % 4)


def test_training_vertices_lie_in_few_communities_with_different_shares() -> None:
    graph = make(train_in=0.5, density_range=8.0, train=0.05, val=0.1).load()
    per_community = np.bincount(graph.splits.train.numpy() // 500, minlength=6)
    assert per_community.sum() == 150 and (per_community > 0).sum() == 3
    ratio = per_community.max() / per_community[per_community > 0].min()
    assert 4 < ratio < 16
    assert graph.splits.val.numel() == 300 and graph.splits.test.numel() == 2550


@pytest.mark.parametrize("power", [-1.0, 1.0])
def test_training_vertices_follow_the_degree(power: float) -> None:
    graph = make(train_power=power, train=0.1).load()
    mean = float(graph.in_degree[graph.splits.train].double().mean())
    assert mean > 30 if power > 0 else mean < 12


def test_a_graph_without_features() -> None:
    graph = make(num_features=0).load()
    assert graph.features is None and graph.num_edges > 50_000


def test_every_option_but_the_buffer_has_its_own_key() -> None:
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"sigma": 0.9},
        {"max_degree": 299},
        {"zeros": 0.1},
        {"block_sizes": [100, 600]},
        {"shares": [0.3, 0.4, 0.3]},
        {"directed": True},
        {"sigma_out": 0.5},
        {"correlation": 0.1},
        {"simple": True},
        {"train_in": 0.8},
        {"density_range": 2.0},
        {"train_power": 1.0},
        {"ids": "scrambled"},
        {"shape": "orkut"},
    ]
    keys = {make(**options).key() for options in [dict[str, Any](), *others]}
    assert len(keys) == len(others) + 1
    assert make(buffer_bytes=3).key() == make().key()


@pytest.mark.parametrize("shape", FITS)
def test_every_shape_is_possible_at_full_size(shape: str) -> None:
    dataset = Configuration(shape=shape)  # type: ignore[arg-type]
    assert dataset.degree_model.mean == pytest.approx(dataset.sizes.num_edges / dataset.sizes.num_nodes)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sigma": 0}, "sigma"),
        ({"max_degree": 3000}, "max_degree.*2 to 2999"),
        ({"max_degree": 15}, "num_edges.*raise dataset.max_degree"),
        ({"num_edges": 2500}, "num_edges.*raise dataset.zeros"),
        ({"zeros": 1.0}, "zeros"),
        ({"correlation": 1.5}, "correlation"),
        ({"sigma_out": -1}, "sigma_out"),
        ({"block_sizes": [500, 100]}, "block_sizes.*ascend"),
        ({"block_sizes": [100, 3000]}, "block_sizes.*3000"),
        ({"block_sizes": [100]}, "shares.*2 shares"),
        ({"shares": [0.5, 0.5, 0.5]}, "add up to 1, not 1.5"),
        ({"shares": [-0.5, 0.5, 1.0]}, "from 0 to 1"),
        ({"train_in": 0.0}, "train_in"),
        ({"train_in": 0.2, "train": 0.9}, "the communities that dataset.train_in=0.2 allows have 500 vertices"),
        ({"density_range": 0.5}, "density_range"),
        ({"train_power": 99}, "train_power"),
        ({"label_noise": 2}, "label_noise"),
        ({"num_nodes": 2**31}, "num_nodes"),
        ({"shape": "papers100m", "num_nodes": 10**8, "num_edges": 2**33, "max_degree": 9999}, "directed"),
        ({"sigma": float("nan")}, "sigma"),
        ({"shares": [float("nan"), 0.5, 0.5]}, "shares"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_drawn(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){problem}"):
        make(**options)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        make(sigma=0, zeros=-1, shares=[1])
    assert {problem.key for problem in refused.value.problems} == {"dataset.sigma", "dataset.zeros", "dataset.shares"}


def test_a_graph_that_no_disk_holds_is_refused_with_its_bytes(tmp_path: Path) -> None:
    huge = Configuration(shape="friendster", num_features=2**20)
    with pytest.raises(DataError, match=r"GiB.*\n?.*dataset.scale="):
        huge.generate(tmp_path / "huge")
    assert list(tmp_path.iterdir()) == []
