"""Pre-sampled counts: those of a count by hand over the same batches, kept, and never those of training's draws."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sampling import graphs, reference_blocks

import gnnexp.preparation.artifacts
import gnnexp.preparation.presample
from gnnexp.errors import DataError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.presample import Presample, open_presample
from gnnexp.kernels.counter import Purpose, mix, stream
from gnnexp.paradigms.loops.targets import TargetSchedule, targets_of_rank
from gnnexp.preparation.artifacts import prepare_presample
from gnnexp.preparation.presample import AccessCounter, presample, presample_key
from gnnexp.samplers.base import Topology
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours
from gnnexp.testing.graphs import csc, nasty_graph
from gnnexp.testing.steps import small_config

ARRAYS = ("destinations", "inputs", "edges")
FANOUTS = [4, 3]
EDGE_IDS = BlockNeeds(edge_ids=True)


class Own(LayerSampler):
    """A user's sampler: up to f in-edges by a hash, the same edge at most once; blocks tell no positions."""

    def setup(self, shard: Shard, num_layers: int) -> None:
        super().setup(shard, num_layers)
        self._graph = self.topology_of(shard)

    def sample_layer(self, frontier: torch.Tensor, hop: int, key: BatchKey) -> Neighbours:
        fanouts = self.options.fanouts
        assert fanouts is not None
        indptr, chosen = [0], []
        for vertex in frontier.tolist():
            first, end = self._graph.indptr[vertex : vertex + 2].tolist()
            words = mix(key.seed ^ mix(key.epoch * 1009 + key.step * 31 + hop)) ^ vertex
            taken = sorted(range(first, end), key=lambda edge, words=words: mix(words ^ mix(edge)))  # type: ignore[misc]
            chosen += taken[: fanouts[hop]]
            indptr.append(len(chosen))
        return Neighbours(torch.tensor(indptr), self._graph.indices[torch.tensor(chosen, dtype=torch.int64)])


@dataclass(frozen=True)
class OwnOptions(LayerSamplerOptions):
    """Its options."""

    fanouts: Sequence[int]
    topology: Topology = "replicated"
    threads: int = 1

    def make(self) -> Own:
        return Own(self)


@dataclass(frozen=True)
class WholeOptions(LayerSamplerOptions):
    """Options that know nothing of partitioned topologies."""

    fanouts: Sequence[int]

    def make(self) -> Own:
        return Own(self)


def config_of(**changes: Any) -> dict[str, Any]:
    model = {"_target_": "gnnexp.models.sage.SAGEOptions", **changes.pop("model", {})}
    return small_config(model, **changes)


def own_config(kind: str = "OwnOptions") -> dict[str, Any]:
    config = config_of()
    config["sampler"] = {"_target_": f"{__name__}.{kind}", "fanouts": FANOUTS}
    return config


def first_parallels(graph: Graph) -> np.ndarray:
    """`[E]` position of the first edge with the same ends."""
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr.numpy()))
    pairs = dst.astype(np.int64) * graph.num_nodes + graph.indices.numpy()
    return np.asarray(np.searchsorted(pairs, pairs))


def folded(graph: Graph, edges: Any) -> list[int]:
    """Counts with those of parallel edges added to the first one's."""
    total = np.zeros(graph.num_edges, np.int64)
    np.add.at(total, first_parallels(graph), np.asarray(edges))
    return [int(count) for count in total]


def dense(counts: Counter[int], length: int) -> list[int]:
    return [counts[i] for i in range(length)]


def batches_of(config: dict[str, Any], graph: Graph, epochs: int) -> list[tuple[list[int], BatchKey]]:
    """Targets and key of every pre-sampled batch."""
    seed = stream(config["seed"], Purpose.PRESAMPLE)
    schedule = TargetSchedule(graph.splits.train, config["train"]["batch_size"], seed, True)
    return [
        (schedule.global_batch(schedule.order(epoch), step).tolist(), BatchKey(seed, epoch, step))
        for epoch in range(epochs)
        for step in range(schedule.num_steps)
    ]


def counted_by_hand(graph: Graph, batches: list[list[dict[str, list[int]]]]) -> dict[str, list[int]]:
    """Counts over batches of blocks in plain lists (`indptr`, `sources`, `src_ids`, input side first)."""
    first = {
        (int(graph.indices[edge]), dst): edge
        for dst in range(graph.num_nodes)
        for edge in reversed(range(int(graph.indptr[dst]), int(graph.indptr[dst + 1])))
    }
    destinations, inputs, edges = Counter[int](), Counter[int](), Counter[int]()
    for blocks in batches:
        inputs.update(blocks[0]["src_ids"])
        for block in blocks:
            ids, starts = block["src_ids"], block["indptr"]
            for place in range(len(starts) - 1):
                destinations[ids[place]] += 1
                for source in block["sources"][starts[place] : starts[place + 1]]:
                    edges[first[ids[source], ids[place]]] += 1
    return {
        "destinations": dense(destinations, graph.num_nodes),
        "inputs": dense(inputs, graph.num_nodes),
        "edges": dense(edges, graph.num_edges),
    }


def as_lists(batch: Batch) -> list[dict[str, list[int]]]:
    return [
        {name: getattr(block, name).tolist() for name in ("indptr", "sources", "src_ids")} for block in batch.blocks
    ]


@pytest.mark.parametrize("simple", [True, False])
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_fused_samplers_counts_are_those_of_its_definition(simple: bool, epochs: int) -> None:
    graph, config = nasty_graph(simple=simple), config_of()
    found = presample(experiment_of(config), graph, epochs)
    batches = batches_of(config, graph, epochs)
    blocks = [reference_blocks(graph, targets, FANOUTS, key, BlockNeeds()) for targets, key in batches]
    expected = counted_by_hand(graph, blocks)
    assert found.destinations.tolist() == expected["destinations"]
    assert found.inputs.tolist() == expected["inputs"]
    assert folded(graph, found.edges) == expected["edges"]
    if simple:
        assert found.edges.tolist() == expected["edges"]
    assert found.epochs == epochs and found.seconds > 0
    assert [getattr(found, name).dtype for name in ARRAYS] == [torch.int64, torch.int64, torch.int32]
    assert found.hops is None
    by_hop = presample(experiment_of(config), graph, epochs, hops=True)
    assert by_hop.hops is not None and torch.equal(by_hop.hops.sum(dim=0), by_hop.destinations)
    assert torch.equal(by_hop.destinations, found.destinations)
    for hop, counts in enumerate(by_hop.hops.tolist()):
        of_hop = [batch[len(batch) - 1 - hop] for batch in blocks]
        dst = Counter(vertex for block in of_hop for vertex in block["src_ids"][: len(block["indptr"]) - 1])
        assert counts == dense(dst, graph.num_nodes)


@pytest.mark.parametrize("simple", [True, False])
def test_a_users_sampler_without_positions_is_counted_by_its_own_batches(simple: bool) -> None:
    graph, config = nasty_graph(simple=simple), own_config()
    found = presample(experiment_of(config), graph, 2)
    sampler = OwnOptions(FANOUTS).make()
    sampler.setup(Shard(graph), 2)
    batches = [sampler.sample(torch.tensor(targets), key) for targets, key in batches_of(config, graph, 2)]
    assert all(block.edge_ids is None for batch in batches for block in batch.blocks)
    expected = counted_by_hand(graph, [as_lists(batch) for batch in batches])
    assert {name: getattr(found, name).tolist() for name in ARRAYS} == expected


def test_a_users_sampler_without_a_topology_is_counted_too() -> None:
    graph = nasty_graph()
    found, expected = (presample(experiment_of(own_config(kind)), graph, 1) for kind in ("WholeOptions", "OwnOptions"))
    assert torch.equal(found.edges, expected.edges)


@given(graphs(), st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.booleans(), st.data())
@settings(max_examples=60)
def test_positions_and_pairs_count_the_same(graph: Graph, fanouts: list[int], loops: bool, data: st.DataObject) -> None:
    """The fast path (positions) and the search by ends agree; self loops that are added are nobody's edge."""
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    found = []
    for positions in (True, False):
        sampler = FusedOptions(fanouts).make()
        sampler.setup(Shard(graph, needs=BlockNeeds(self_loops=loops, edge_ids=positions)), len(fanouts))
        batch = sampler.sample(torch.tensor(seeds, dtype=torch.int64), BatchKey(1, 2, 3))
        assert all((block.edge_ids is not None) == positions for block in batch.blocks)
        tally = AccessCounter(graph)
        tally.add(batch)
        counts = tally.finish(1, 0.0, [])
        drawn = sum(block.num_edges - block.num_dst * loops for block in batch.blocks)
        assert int(counts.edges.sum()) == drawn
        assert int(counts.destinations.sum()) == sum(block.num_dst for block in batch.blocks)
        assert int(counts.inputs.sum()) == batch.input_ids.numel()
        found.append((folded(graph, counts.edges), counts.destinations.tolist(), counts.inputs.tolist()))
    assert found[0] == found[1]


def test_a_drawn_pair_that_is_no_edge_of_the_graph_counts_on_none() -> None:
    """A sampler that draws along random walks, say: 2 -> 0 between the edges 1 -> 0 and 3 -> 0."""
    graph = csc(4, np.array([1, 3, 0]), np.array([0, 0, 1]))
    ids = torch.tensor([0, 2], dtype=torch.int32)
    block = Block(torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32), ids, 1)
    tally = AccessCounter(graph)
    tally.add(Batch(ids[:1], (block,), BatchKey(0, 0, 0)))
    assert tally.finish(1, 0.0, []).edges.tolist() == [0, 0, 0]


@pytest.mark.parametrize("config", [config_of(), own_config()], ids=["fused", "own"])
def test_threads_change_nothing(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nasty_graph()
    found = []
    for threads in (0, 1, 2, 5):
        monkeypatch.setattr(gnnexp.preparation.presample, "_THREADS", threads)
        made = presample(experiment_of({**config, "sampler": {**config["sampler"], "threads": threads}}), graph, 3)
        found.append([getattr(made, name).tolist() for name in ARRAYS] + [made.convergence])
    assert all(other == found[0] for other in found[1:])


def test_draws_are_not_those_of_training() -> None:
    graph, config = nasty_graph(), config_of()
    found = presample(experiment_of(config), graph, 1)
    sampler = FusedOptions(FANOUTS).make()
    sampler.setup(Shard(graph, needs=EDGE_IDS), 2)
    seed = config["seed"]
    tally = AccessCounter(graph)
    # Training's own draws, first of the pre-sampled targets, then of training's order.
    for targets, key in batches_of(config, graph, 1):
        tally.add(sampler.sample(torch.tensor(targets), BatchKey(seed, key.epoch, key.step)))
    same_targets, schedule = tally.finish(1, 0.0, []), TargetSchedule(graph.splits.train, 8, seed, True)
    trained = [schedule.global_batch(schedule.order(0), step).tolist() for step in range(schedule.num_steps)]
    assert trained != [targets for targets, _ in batches_of(config, graph, 1)]
    assert found.edges.tolist() != same_targets.edges.tolist()
    other = presample(experiment_of({**config, "seed": seed + 1}), graph, 1)
    assert found.edges.tolist() != other.edges.tolist()


def test_convergence_is_how_the_mean_weights_moved_and_it_decreases() -> None:
    graph, config = nasty_graph(), config_of()
    prefixes = [presample(experiment_of(config), graph, epochs) for epochs in range(1, 8)]
    assert [len(prefix.convergence) for prefix in prefixes] == list(range(7))
    moved = prefixes[-1].convergence
    for number, (before, now) in enumerate(pairwise(prefixes)):
        for name, array in (("vertices", "destinations"), ("edges", "edges")):
            old, new = (getattr(made, array).double() / made.epochs for made in (before, now))
            assert moved[number][name] == pytest.approx(float((new - old).abs().sum() / new.sum()), rel=1e-12)
    for name in ("vertices", "edges"):
        assert 0 < moved[-1][name] < 0.5 * moved[0][name]


def test_no_training_vertices_count_nothing() -> None:
    graph = nasty_graph()
    none = torch.empty(0, dtype=torch.int64)
    graph = replace(graph, splits=type(graph.splits)(none, graph.splits.val, graph.splits.test))
    found = presample(experiment_of(config_of()), graph, 3)
    assert all(int(getattr(found, name).sum()) == 0 for name in ARRAYS)
    assert found.convergence == [{"vertices": 0.0, "edges": 0.0}] * 2


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Presample, Path, Graph]:
    graph = nasty_graph()
    made = presample(experiment_of(config_of()), graph, 3, hops=True)
    made.save(tmp_path / "counts")
    return made, tmp_path / "counts", graph


def test_saved_counts_are_opened_again(saved: tuple[Presample, Path, Graph]) -> None:
    made, folder, graph = saved
    found = open_presample(folder, graph)
    for name in ARRAYS:
        assert getattr(found, name).dtype == getattr(made, name).dtype
        assert torch.equal(getattr(found, name), getattr(made, name))
    assert found.hops is not None and made.hops is not None and torch.equal(found.hops, made.hops)
    assert (found.epochs, found.seconds, list(found.convergence)) == (3, made.seconds, list(made.convergence))


def edit(folder: Path, **values: Any) -> None:
    meta = json.loads((folder / META).read_text())
    for name, value in values.items():
        meta.pop(name)
        if value is not None:
            meta[name] = value
    (folder / META).write_text(json.dumps(meta))


DAMAGES: dict[str, Any] = {
    "edges cut short": lambda folder: os.truncate(folder / "edges.npy", 150),
    "hops cut short": lambda folder: os.truncate(folder / "hops.npy", 150),
    "inputs gone": lambda folder: (folder / "inputs.npy").unlink(),
    "meta gone": lambda folder: (folder / META).unlink(),
    "no json": lambda folder: (folder / META).write_text("{"),
    "gone": shutil.rmtree,
    "another kind": lambda folder: edit(folder, kind="partition"),
    "no epochs": lambda folder: edit(folder, epochs=None),
    "epochs as text": lambda folder: edit(folder, epochs="3"),
    "no convergence": lambda folder: edit(folder, convergence=None),
    "no seconds": lambda folder: edit(folder, seconds=None),
    "seconds as text": lambda folder: edit(folder, seconds="soon"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_counts_are_a_data_problem(saved: tuple[Presample, Path, Graph], damage: str) -> None:
    _, folder, graph = saved
    DAMAGES[damage](folder)
    with pytest.raises(DataError) as caught:
        open_presample(folder, graph)
    assert all(str(folder) in problem.key and problem.fix for problem in caught.value.problems)


def test_counts_of_another_graph_are_refused(saved: tuple[Presample, Path, Graph]) -> None:
    _, folder, _ = saved
    with pytest.raises(DataError, match="60 vertices and 300 edges"):
        open_presample(folder, nasty_graph(num_edges=300))
    with pytest.raises(DataError, match="61 vertices and 400 edges"):
        open_presample(folder, nasty_graph(num_nodes=61))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per pre-sampling that `prepare_presample` starts."""
    started: list[int] = []

    def counted(experiment: Experiment, graph: Graph, epochs: int, **options: bool) -> Presample:
        started.append(epochs)
        return presample(experiment, graph, epochs, **options)

    monkeypatch.setattr(gnnexp.preparation.artifacts, "presample", counted)
    return started


def test_counts_by_hop_have_a_folder_of_their_own(tmp_path: Path, runs: list[int]) -> None:
    graph = nasty_graph()
    both = [
        prepare_presample(experiment_of(config_of()), graph, "key", 2, tmp_path, hops=hops) for hops in (False, True)
    ]
    assert runs == [2, 2] and both[0][1] != both[1][1]
    assert both[0][0].hops is None and both[1][0].hops is not None


@pytest.mark.parametrize("key", ["micro", "global"])
def test_micro_batches_of_the_ranks_are_counted_each(key: str) -> None:
    """Three ranks with even shares: a row counts for each rank that reads it. They draw apart, or together."""
    graph, config = nasty_graph(), config_of()
    config["sampler"]["key"], config["hardware"] = key, {**config.get("hardware", {}), "workers": 3}
    found = presample(experiment_of(config), graph, 2, micro=True)
    blocks = [
        reference_blocks(
            graph,
            targets_of_rank(torch.tensor(targets), rank, 3).tolist(),
            FANOUTS,
            replace(drawn, micro=rank) if key == "micro" else drawn,
            BlockNeeds(),
        )
        for targets, drawn in batches_of(config, graph, 2)
        for rank in range(3)
    ]
    assert found.inputs.tolist() == counted_by_hand(graph, blocks)["inputs"]
    assert (found.inputs > presample(experiment_of(config), graph, 2).inputs).any()


def test_counts_of_micro_batches_depend_on_ranks_and_their_draws() -> None:
    keys = set()
    for workers, key in ((2, "micro"), (3, "micro"), (3, "global")):
        config = config_of()
        config["sampler"]["key"], config["hardware"] = key, {**config.get("hardware", {}), "workers": workers}
        keys |= {presample_key(experiment_of(config), "graph", 2, micro=micro) for micro in (True, False)}
    assert len(keys) == 4, "those of global batches are the same"


def test_prepared_counts_are_sampled_once(tmp_path: Path, runs: list[int]) -> None:
    graph, config = nasty_graph(), config_of()
    made, folder = prepare_presample(experiment_of(config), graph, "key", 2, tmp_path)
    assert folder == tmp_path / "presamples" / f"nasty-2-{presample_key(experiment_of(config), 'key', 2)[:16]}"
    again, same = prepare_presample(experiment_of(config), graph, "key", 2, tmp_path)
    assert (runs, same) == ([2], folder)
    expected = presample(experiment_of(config), graph, 2)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for found in (made, again) for name in ARRAYS)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_damaged_counts_are_sampled_again(tmp_path: Path, runs: list[int]) -> None:
    graph, config = nasty_graph(), config_of()
    made, folder = prepare_presample(experiment_of(config), graph, "key", 2, tmp_path)
    expected = made.edges.clone()
    os.truncate(folder / "edges.npy", 150)
    again, _ = prepare_presample(experiment_of(config), graph, "key", 2, tmp_path)
    assert runs == [2, 2] and torch.equal(again.edges, expected)


OTHER: dict[str, dict[str, Any]] = {
    "fanouts": {"sampler": {"fanouts": [4, 2]}},
    "batch size": {"train": {"batch_size": 9}},
    "order": {"train": {"shuffle": False}},
    "layers": {"model": {"layers": 3}},
    "task": {"task": {"metric": "acc"}},
}
SAME: dict[str, dict[str, Any]] = {
    "threads": {"sampler": {"threads": 3}},
    "prefetch": {"sampler": {"prefetch": 9}},
    "topology": {"sampler": {"topology": "partitioned"}},
    "micro": {"sampler": {"key": "micro"}},
    "lr": {"optimizer": {"lr": 1.0}},
    "hidden": {"model": {"hidden": 3}},
    "workers": {"hardware": {"workers": 4}},
}


def test_another_configuration_of_batches_has_its_own_counts(tmp_path: Path, runs: list[int]) -> None:
    graph = nasty_graph()
    folders = {prepare_presample(experiment_of(config_of()), graph, "key", 2, tmp_path)[1]}
    for change in ({"sampler": {"fanouts": [4, 2]}}, {"train": {"batch_size": 9}}):
        folders.add(prepare_presample(experiment_of(config_of(**change)), graph, "key", 2, tmp_path)[1])
    folders.add(prepare_presample(experiment_of(config_of()), graph, "key", 3, tmp_path)[1])
    folders.add(prepare_presample(experiment_of(config_of()), graph, "other", 2, tmp_path)[1])
    folders.add(prepare_presample(experiment_of({**config_of(), "seed": 9}), graph, "key", 2, tmp_path)[1])
    assert len(folders) == len(runs) == 6


@pytest.mark.parametrize("change", [*OTHER, *SAME])
def test_the_key_holds_what_decides_the_batches_and_nothing_else(change: str) -> None:
    before = presample_key(experiment_of(config_of()), "key", 2)
    after = presample_key(experiment_of(config_of(**{**OTHER, **SAME}[change])), "key", 2)
    assert (before == after) == (change in SAME)
    assert len(before) == 64


def test_a_partitioned_or_micro_sampler_gives_the_same_counts() -> None:
    graph = nasty_graph()
    expected = presample(experiment_of(config_of()), graph, 2)
    found = presample(experiment_of(config_of(sampler={"topology": "partitioned", "key": "micro"})), graph, 2)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in ARRAYS)
