"""Partitions weighted by pre-sampled epochs, and partitions that somebody has stored."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments import check_config
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, DataError, ProblemsError
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.partition import Partition
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.presample import Presample
from gnnexp.kernels.graph.undirected import undirected
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.presampled import PresampledPartitioner
from gnnexp.partitioners.presampled_node import PresampledNodePartitioner
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.partitioners.stored import StoredPartitioner
from gnnexp.preparation.artifacts import prepare_partition
from gnnexp.preparation.presample import presample
from gnnexp.testing.graphs import csc, edge_list, random_graph
from gnnexp.testing.steps import small_config
from gnnexp.testing.strategies import graphs

NONE = torch.empty(0, dtype=torch.int64)
INT64 = np.dtype(np.int64)
Both = type[PresampledPartitioner] | type[PresampledNodePartitioner]


def communities(num_nodes: int = 2400, num_edges: int = 24_000, seed: int = 0) -> Graph:
    """24 planted communities with skewed degrees; training vertices are in three of them."""
    draws = np.random.default_rng(seed)
    member = np.sort(draws.integers(0, 24, num_nodes))
    starts = np.searchsorted(member, np.arange(25))

    def skewed(group: np.ndarray) -> np.ndarray:
        width = starts[group + 1] - starts[group]
        return np.asarray(starts[group] + (draws.random(group.size) ** 3 * width).astype(np.int64))

    group = draws.integers(0, 24, num_edges)
    dst = np.where(draws.random(num_edges) < 0.85, skewed(group), draws.integers(0, num_nodes, num_edges))
    shuffle = draws.permutation(num_nodes)
    train = np.sort(shuffle[np.flatnonzero(member < 3)])
    graph = csc(num_nodes, shuffle[skewed(group)], shuffle[dst])
    return replace(graph, splits=Splits(torch.from_numpy(train), NONE, NONE))


@pytest.fixture(scope="module")
def sampled() -> tuple[Graph, Presample]:
    graph = communities()
    labels = torch.zeros(graph.num_nodes, dtype=torch.int64)
    graph = replace(graph, labels=labels, num_classes=2)
    config = small_config({"_target_": "gnnexp.models.sage.SAGEOptions"}, train={"batch_size": 32})
    return graph, presample(experiment_of(config), graph, 4, hops=True)


def counts_of(graph: Graph, destinations: Any = None, edges: Any = None, inputs: Any = None) -> Presample:
    """Counts as given, ones where nothing is."""

    def array(given: Any, length: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(length, dtype=dtype) if given is None else torch.as_tensor(given, dtype=dtype)

    return Presample(
        array(destinations, graph.num_nodes, torch.int64),
        array(inputs, graph.num_nodes, torch.int64),
        array(edges, graph.num_edges, torch.int32),
        1,
        0.1,
        [],
    )


def balance(owner: torch.Tensor, weights: torch.Tensor, num_parts: int) -> float:
    """Weight of the heaviest part over the mean."""
    loads = np.bincount(owner.numpy(), weights.double().numpy(), minlength=num_parts)
    return float(loads.max() / loads.mean())


def cut(graph: Graph, owner: torch.Tensor, weights: torch.Tensor) -> int:
    """Weight of the edges between parts."""
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degree)
    return int(weights.long()[owner[graph.indices.long()] != owner[dst]].sum())


@pytest.mark.parametrize("num_parts", [4, 8])
def test_destination_weights_are_balanced_where_edges_and_training_vertices_do_not_balance_them(
    sampled: tuple[Graph, Presample], num_parts: int
) -> None:
    graph, counts = sampled
    found = PresampledPartitioner().partition(graph, num_parts, presample=counts).node_owner
    assert balance(found, counts.destinations, num_parts) < 1.03 + 0.03
    for what in (["edges"], ["train"], ["vertices"]):
        other = MetisPartitioner(balance=what).partition(graph, num_parts).node_owner  # type: ignore[arg-type]
        assert balance(other, counts.destinations, num_parts) > 1.12, what


@pytest.mark.parametrize("num_parts", [2, 4])
def test_it_cuts_fewer_sampled_edges_than_without_edge_weights(
    sampled: tuple[Graph, Presample], num_parts: int
) -> None:
    graph, counts = sampled
    weighted = PresampledPartitioner().partition(graph, num_parts, presample=counts).node_owner
    node_only = PresampledNodePartitioner().partition(graph, num_parts, presample=counts).node_owner
    chance = RandomPartitioner().partition(graph, num_parts).node_owner
    assert balance(node_only, counts.destinations, num_parts) < 1.06
    cuts = [cut(graph, owner, counts.edges) for owner in (weighted, node_only, chance)]
    assert cuts == sorted(cuts) and cuts[0] < 0.75 * cuts[2]


def test_input_weight_adds_the_reads(sampled: tuple[Graph, Presample]) -> None:
    graph, counts = sampled
    both = counts.destinations + 3 * counts.inputs
    found = PresampledPartitioner(input_weight=3.0).partition(graph, 4, presample=counts).node_owner
    assert balance(found, both, 4) < 1.06
    without = PresampledPartitioner().partition(graph, 4, presample=counts).node_owner
    assert not torch.equal(found, without)


@pytest.mark.parametrize("kind", [PresampledPartitioner, PresampledNodePartitioner])
def test_the_work_of_each_layer_is_balanced(kind: Both) -> None:
    """Equation 1. One half of the graph has the work of one layer each: balanced sums (Equation 2) leave them apart."""
    half = np.repeat([0, 200], 2000)
    src, dst = np.random.default_rng(0).integers(0, 200, (2, 4000)) + half
    graph = csc(400, src, dst)
    hops = torch.tensor([[10, 0], [0, 10]]).repeat_interleave(200, dim=1)
    counts = replace(counts_of(graph, destinations=hops.sum(dim=0)), hops=hops)
    for options, limit in ({"balance": "layers"}, 1.06), ({}, None):
        found = kind(**options).partition(graph, 2, presample=counts).node_owner
        loads = [balance(found, hop, 2) for hop in hops]
        assert max(loads) < limit if limit else min(loads) == 2


def test_a_layer_without_destinations_does_not_count(sampled: tuple[Graph, Presample]) -> None:
    graph, counts = sampled
    nothing = torch.zeros(1, graph.num_nodes, dtype=torch.int64)
    more = replace(counts, hops=torch.cat([counts.hops, nothing]))
    found, expected = (
        PresampledPartitioner(balance="layers").partition(graph, 4, presample=one).node_owner for one in (more, counts)
    )
    assert torch.equal(found, expected)
    none = replace(counts, hops=nothing)
    assert PresampledPartitioner(balance="layers").partition(graph, 4, presample=none).node_owner.unique().numel() == 4


def test_published_weights_are_counts_times_the_mean_degree_plus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, given = random_graph(30, 75, 0), []

    def kept(self: Any, graph: Graph, num_parts: int, weights: Any, frequency: Any) -> Any:
        given.append(weights)

    monkeypatch.setattr(PresampledPartitioner, "split", kept)
    counts = counts_of(graph, destinations=range(30), inputs=[2] * 30)
    PresampledPartitioner(vertex_weight="published", input_weight=0.5).weigh_by(counts)
    for options in ({}, {"input_weight": 0.5}):
        partitioner = PresampledPartitioner(vertex_weight="published", **options)
        partitioner.weigh_by(counts)
        partitioner.assign(graph, 2)
    mean = graph.num_edges / 30
    expected = [round(count * mean) + 1 for count in range(30)]
    assert given[0][:, 0].tolist() == expected
    assert given[1][:, 0].tolist() == [weight + 1 for weight in expected]


def test_the_same_counts_give_the_same_parts_and_another_seed_others(sampled: tuple[Graph, Presample]) -> None:
    graph, counts = sampled
    first, again = (PresampledPartitioner().partition(graph, 4, presample=counts).node_owner for _ in range(2))
    assert torch.equal(first, again)
    other = PresampledPartitioner(seed=1).partition(graph, 4, presample=counts).node_owner
    assert not torch.equal(first, other)


def test_the_node_ablation_ignores_edge_weights(sampled: tuple[Graph, Presample]) -> None:
    graph, counts = sampled
    shuffled = torch.randint(0, 50, (graph.num_edges,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    other = replace(counts, edges=shuffled)
    for kind, same in ((PresampledNodePartitioner, True), (PresampledPartitioner, False)):
        owners = [kind().partition(graph, 4, presample=found).node_owner for found in (counts, other)]
        assert torch.equal(*owners) == same
    ablation = PresampledPartitioner(edge_weights=False).partition(graph, 4, presample=other).node_owner
    assert torch.equal(ablation, PresampledNodePartitioner().partition(graph, 4, presample=counts).node_owner)


def test_an_edge_that_is_sampled_often_is_not_cut_whatever_the_others_are() -> None:
    """A ring of eight whose sampled edges are every other one: four pairs."""
    ring = np.arange(8)
    graph = csc(8, ring, (ring + 1) % 8)
    edges = [100 if (dst - 1) % 8 % 2 == 0 else 1 for _, dst in edge_list(graph)]
    counts = counts_of(graph, edges=edges)
    owner = PresampledPartitioner(imbalance=0.01).partition(graph, 4, presample=counts).node_owner
    assert [int(owner[first] == owner[first + 1]) for first in (0, 2, 4, 6)] == [1, 1, 1, 1]


@settings(max_examples=80)
@given(graphs(), st.data())
def test_edges_that_were_never_sampled_are_pruned(graph: Graph, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=graph.num_edges, max_size=graph.num_edges))
    expected: Counter[tuple[int, int]] = Counter()
    for (src, dst), weight in zip(edge_list(graph), counts, strict=True):
        if src != dst and weight:
            expected[src, dst] += weight
            expected[dst, src] += weight
    starts, neighbours, weights = undirected(
        graph.indptr.numpy(), graph.indices.numpy(), INT64, np.array(counts, np.int32)
    )
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(starts))
    found = list(zip(rows.tolist(), neighbours.tolist(), strict=True))
    assert found == sorted(expected)
    assert weights.tolist() == [expected[pair] for pair in found]


def test_weights_of_both_directions_and_of_parallel_edges_add_up_beyond_int32() -> None:
    graph = csc(3, np.array([0, 0, 1, 2]), np.array([1, 1, 0, 2]))
    large = (1 << 31) - 1
    starts, neighbours, weights = undirected(
        graph.indptr.numpy(), graph.indices.numpy(), INT64, np.full(4, large, np.int32)
    )
    assert (starts.tolist(), neighbours.tolist(), weights.tolist()) == ([0, 1, 2, 2], [1, 0], [3 * large, 3 * large])


@pytest.mark.parametrize("kind", [PresampledPartitioner, PresampledNodePartitioner])
@settings(max_examples=25, deadline=None)
@given(graph=graphs(), data=st.data())
def test_every_part_of_every_small_graph_has_a_vertex(kind: Both, graph: Graph, data: st.DataObject) -> None:
    """Isolated vertices, vertices and edges that were never sampled, as many parts as vertices."""
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    count = st.sampled_from([0, 0, 1, 3, 1000])
    counts = counts_of(
        graph,
        data.draw(st.lists(count, min_size=graph.num_nodes, max_size=graph.num_nodes)),
        data.draw(st.lists(count, min_size=graph.num_edges, max_size=graph.num_edges)),
    )
    partition = kind().partition(graph, num_parts, "key", counts)
    assert (partition.node_owner.dtype, partition.num_parts) == (torch.int16, num_parts)
    assert int(partition.part_sizes().min()) >= 1
    assert partition.method == ("presampled" if kind is PresampledPartitioner else "presampled_node")
    assert torch.equal(kind().partition(graph, num_parts, "key", counts).node_owner, partition.node_owner)


@pytest.mark.parametrize("kind", [PresampledPartitioner, PresampledNodePartitioner])
def test_one_part_has_everything(kind: Both) -> None:
    graph = random_graph(30, 60, 0)
    assert kind().partition(graph, 1, presample=counts_of(graph)).node_owner.tolist() == [0] * 30


def test_nothing_was_sampled() -> None:
    graph = random_graph(30, 60, 0)
    counts = counts_of(graph, torch.zeros(30), torch.zeros(60))
    sizes = PresampledPartitioner().partition(graph, 3, presample=counts).part_sizes()
    assert int(sizes.max()) <= 11  # then every vertex weighs the same


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"epochs": 0}, ["epochs"]),
        ({"input_weight": -1.0}, ["input_weight"]),
        ({"input_weight": 1e6}, ["input_weight"]),
        ({"input_weight": float("nan")}, ["input_weight"]),
        ({"imbalance": 0.0}, ["imbalance"]),
        ({"imbalance": float("nan")}, ["imbalance"]),
        ({"balance": "layer"}, ["balance"]),
        ({"vertex_weight": "degree"}, ["vertex_weight"]),
        (
            {"balance": "layers", "vertex_weight": "published", "input_weight": 1.0},
            ["vertex_weight", "input_weight"],
        ),
        ({"seed": -1}, ["seed"]),
        ({"seed": (1 << 31) - 1}, ["seed"]),
        (
            {"epochs": -3, "imbalance": -1.0, "seed": -1, "input_weight": -0.1},
            ["epochs", "input_weight", "imbalance", "seed"],
        ),
    ],
)
@pytest.mark.parametrize("kind", [PresampledPartitioner, PresampledNodePartitioner])
def test_bad_options_are_refused_all_at_once(kind: Both, options: dict[str, Any], keys: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**options)
    assert [problem.key for problem in caught.value.problems] == [f"partitioner.{key}" for key in keys]
    assert all(problem.fix.startswith(problem.key + "=") for problem in caught.value.problems)


@pytest.mark.parametrize("num_parts", [0, -1, 31])
def test_more_parts_than_vertices_are_refused(num_parts: int) -> None:
    graph = random_graph(30, 60, 0)
    with pytest.raises(ConfigError, match="must be 1 to 30"):
        PresampledPartitioner().partition(graph, num_parts, presample=counts_of(graph))


def test_it_asks_for_its_epochs_and_its_key_holds_the_counts() -> None:
    assert PresampledPartitioner(epochs=7).presampled_epochs == 7
    assert PresampledNodePartitioner(epochs=3).presampled_epochs == 3
    assert (MetisPartitioner().presampled_epochs, RandomPartitioner().presampled_epochs) == (0, 0)
    made = [
        PresampledPartitioner(),
        PresampledPartitioner(edge_weights=False),
        PresampledNodePartitioner(),
        PresampledPartitioner(input_weight=1.0),
        PresampledPartitioner(balance="layers"),
        PresampledPartitioner(vertex_weight="published"),
        PresampledPartitioner(seed=1),
    ]
    keys = {partitioner.key("graph", 4, "counts") for partitioner in made}
    keys |= {made[0].key("graph", 4, "other"), made[0].key("graph", 8, "counts"), made[0].key("other", 4, "counts")}
    assert len(keys) == 10
    assert PresampledPartitioner().key("graph", 4, "counts") == made[0].key("graph", 4, "counts")


def test_prepared_parts_follow_the_counts(sampled: tuple[Graph, Presample], tmp_path: Path) -> None:
    graph, counts = sampled
    folders = []
    for name in ("a", "b", "a"):
        found, folder = prepare_partition(PresampledPartitioner(), graph, "key", 4, tmp_path, (counts, tmp_path / name))
        folders.append(folder)
        assert torch.equal(found.node_owner, PresampledPartitioner().partition(graph, 4, presample=counts).node_owner)
    assert folders[0] == folders[2] != folders[1]
    assert folders[0].name.startswith("presampled-4-")


# --- partitions made before -------------------------------------------------------------------------------------------


@pytest.fixture
def graph() -> Graph:
    return random_graph(30, 60, 0)


@pytest.fixture
def folder(graph: Graph, tmp_path: Path) -> Path:
    RandomPartitioner(seed=4).partition(graph, 3, "key").save(tmp_path / "parts")
    return tmp_path / "parts"


def test_the_stored_owners_are_taken(graph: Graph, folder: Path, tmp_path: Path) -> None:
    expected = RandomPartitioner(seed=4).partition(graph, 3).node_owner
    stored = StoredPartitioner(str(folder))
    assert torch.equal(stored.partition(graph, 3, "key").node_owner, expected)
    owners = stored.assign(graph, 3)
    assert torch.equal(owners.nodes, expected) and owners.edges is None
    assert stored.presampled_epochs == 0
    prepared, place = prepare_partition(stored, graph, "key", 3, tmp_path / "cache")
    assert torch.equal(prepared.node_owner, expected) and place.name.startswith("stored-3-")
    assert prepare_partition(StoredPartitioner(str(folder)), graph, "key", 3, tmp_path / "cache")[1] == place


def test_edge_owners_are_taken_too(graph: Graph, tmp_path: Path) -> None:
    edges = torch.arange(60, dtype=torch.int16) % 2
    Partition(torch.zeros(30, dtype=torch.int16), 2, edges, graph_key="key").save(tmp_path / "cut")
    stored = StoredPartitioner(str(tmp_path / "cut"))
    for found in (stored.partition(graph, 2, "key").edge_owner, stored.assign(graph, 2).edges):
        assert found is not None and torch.equal(found, edges)


@pytest.mark.parametrize("edges", [None, torch.zeros(60, dtype=torch.int16)], ids=["edge-cut", "vertex-cut"])
def test_its_file_says_whether_it_is_a_vertex_cut(tmp_path: Path, edges: Tensor | None) -> None:
    Partition(torch.zeros(30, dtype=torch.int16), 2, edges, graph_key="key").save(tmp_path / "parts")
    stored = ["partitioner=stored", f"partitioner.path={tmp_path / 'parts'}"]
    assert StoredPartitioner(str(tmp_path / "parts")).vertex_cut == (edges is not None)
    split, taken = compose([*stored, "paradigm=split_parallel"]).config, compose(stored).config
    found = [(problem.key, problem.value) for problem in check_config(split)]
    assert found == ([] if edges is None else [("partitioner", "stored")])
    assert check_config(taken) == [], "no partition is wanted"


def test_its_key_is_what_it_holds_wherever_that_is(graph: Graph, folder: Path, tmp_path: Path) -> None:
    before = StoredPartitioner(str(folder)).key("key", 3)
    folder.rename(tmp_path / "moved")
    assert StoredPartitioner(str(tmp_path / "moved")).key("key", 3) == before
    RandomPartitioner(seed=5).partition(graph, 3, "key").save(tmp_path / "others")
    assert StoredPartitioner(str(tmp_path / "others")).key("key", 3) != before


def test_another_number_of_parts_is_refused(graph: Graph, folder: Path, tmp_path: Path) -> None:
    for use in (
        lambda stored: stored.partition(graph, 4, "key"),
        lambda stored: stored.assign(graph, 4),
        lambda stored: prepare_partition(stored, graph, "key", 4, tmp_path / "cache"),
    ):
        with pytest.raises(DataError) as caught:
            use(StoredPartitioner(str(folder)))
        (problem,) = caught.value.problems
        assert problem.key == "partitioner.path" and "has 3 parts, the run needs 4" in problem.allowed
        assert "partitioner.num_parts=4" in problem.fix


def test_another_graphs_partition_is_refused(graph: Graph, folder: Path) -> None:
    stored = StoredPartitioner(str(folder))
    with pytest.raises(DataError, match="must be other, the key of this graph"):
        stored.partition(graph, 3, "other")
    with pytest.raises(DataError, match=r"must be int16 or int32 \[31\]"):
        stored.partition(random_graph(31, 60, 0), 3, "key")


@pytest.mark.parametrize("path", ["nowhere", "file", "empty"])
def test_a_folder_without_a_partition_is_refused_at_once(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        StoredPartitioner(str(tmp_path / path))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("partitioner.path", str(tmp_path / path))
    assert "gnnexp partition" in problem.fix


def edit(folder: Path, **values: Any) -> None:
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps(meta | values))


def flip(folder: Path) -> None:
    """One owner changed behind the checksum's back."""
    path = folder / "node_owner.npy"
    content = bytearray(path.read_bytes())
    content[-2] = (content[-2] + 1) % 3
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "node_owner.npy", 140),
        lambda folder: (folder / "node_owner.npy").unlink(),
        lambda folder: (folder / META).write_text("{"),
        lambda folder: edit(folder, kind="graph"),
        lambda folder: edit(folder, num_parts="3"),
        lambda folder: edit(folder, graph_key=None),
        flip,
    ],
    ids=["cut short", "owners gone", "no json", "a graph", "parts as text", "no key", "a changed owner"],
)
def test_a_damaged_folder_is_refused(graph: Graph, folder: Path, tmp_path: Path, damage: Any) -> None:
    damage(folder)
    for use in (
        lambda stored: stored.partition(graph, 3, "key"),
        lambda stored: prepare_partition(stored, graph, "key", 3, tmp_path / "cache"),
    ):
        with pytest.raises(ProblemsError) as caught:
            use(StoredPartitioner(str(folder)))
        assert all(problem.fix and str(folder) in problem.key for problem in caught.value.problems)
