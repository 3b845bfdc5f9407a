"""The preflight's sum: lines add up, follow the graph and the choices, and are not far from what a run then takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments import estimated, experiment_in
from full_graph import full_config

from gnnexp.cli.main import run_command
from gnnexp.experiment.build import build
from gnnexp.graph.build import build_graph
from gnnexp.graph.parts import Parts, PartSizes
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.preparation.preflight import as_text, memory_problems
from gnnexp.record.runs import read_run
from gnnexp.samplers.base import SamplerOptions
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import TENSOR, VERTEX


def configured(**changes: Any) -> dict[str, Any]:
    config = small_config(MODELS["sage"])
    for group, values in changes.items():
        config[group] = {**config[group], **values}
    config["partitioner"] = {"_target_": "gnnexp.partitioners.random.RandomPartitioner"}
    config["hardware"] = {**config["hardware"], "launcher": {"_target_": "gnnexp.launchers.local.LocalLauncher"}}
    return config


def of(config: dict[str, Any], **graph: Any) -> dict[str, int]:
    found = estimated(config, nasty_graph(**graph), graph_files=1234)
    for place in ("host", "device", "shared", "disk"):
        total = sum(
            need.num_bytes * (found.ranks if need.per_rank and place != "device" else 1)
            for need in found.needs
            if need.place == place or (place == "host" and need.place == "device")
        )
        assert found.total(place) == total
        assert len(found.lines(place)) <= len(found.needs)
    return {place: found.total(place) for place in ("host", "device", "shared", "disk")}


def test_every_rank_needs_its_own_and_the_files_are_shared():
    one, four = of(configured()), of(configured(hardware={"workers": 4}))
    epochs = configured()["train"].get("epochs", 10)
    assert four["shared"] == one["shared"] == 1234
    assert four["disk"] - one["disk"] == 3 * 4 * 1500 * epochs, "three more ranks in every epoch's line, in 4 copies"
    assert 3 * one["host"] < four["host"] < 4 * one["host"]


@pytest.mark.parametrize(("typed", "edge"), [(False, 4), (True, 8)])
def test_a_topology_of_its_own_is_what_a_rank_holds(typed, edge):
    graph = nasty_graph(typed=typed)
    data = {"_target_": "gnnexp.paradigms.data_parallel.DataParallel", "assign": "owner"}
    changes = {
        "paradigm": data,
        "hardware": {"workers": 2},
        "feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"},
    }
    own, whole = (
        of(configured(**changes, sampler={"topology": topology}), typed=typed)["host"]
        for topology in ("partitioned", "replicated")
    )
    assert own - whole == 2 * (8 * (graph.num_nodes + 1) + edge * -(-graph.num_edges // 2))
    shards = [Shard(graph, rank, 2, BlockNeeds(), parts(graph, 2), rank) for rank in range(2)]
    sampler = FusedOptions([4, 3], topology="partitioned").make()
    held = [sampler.topology_bytes(shard) for shard in shards]
    assert sum(held) == own - whole - edge * (graph.num_edges % 2)


@pytest.mark.parametrize("parallel", [False, True])
def test_attention_dropout_numbers_parallel_edges(parallel):
    """Of a graph that has some: 4 bytes for every edge."""
    found = []
    for dropout in (0.0, 0.5):
        config = configured()
        config["model"] = {**small_config(MODELS["gat"])["model"], "attention_dropout": dropout}
        graph = nasty_graph()
        if not parallel:
            edges = (graph.destinations().numpy(), graph.indices.numpy(), graph.num_nodes)
            merged = build_graph(edges[1], edges[0], edges[2])
            graph = replace(graph, indptr=merged.indptr, indices=merged.indices)
        found.append(estimated(config, graph, 0).total("host"))
    assert (graph.occurrence is not None) == parallel
    assert found[1] - found[0] == (4 * graph.num_edges if parallel else 0)


def test_dgl_holds_a_copy_of_the_sources():
    pytest.importorskip("dgl")
    graph = nasty_graph()
    names = {"fused": "gnnexp.samplers.fused.FusedOptions", "dgl": "gnnexp.samplers.dgl.DGLOptions"}
    found = {name: of(configured(sampler={"_target_": target}))["host"] for name, target in names.items()}
    assert found["dgl"] - found["fused"] == 8 * graph.num_edges
    held = {
        name: build({"_target_": target, "fanouts": [4, 3]}, SamplerOptions).make().topology_bytes(Shard(graph))
        for name, target in names.items()
    }
    assert held["dgl"] - held["fused"] == found["dgl"] - found["fused"]


@pytest.mark.parametrize(("dtype", "itemsize"), [(None, 8), ("bfloat16", 2)])
def test_pinned_features_are_there_once_per_machine(dtype, itemsize):
    graph = nasty_graph()
    rows = graph.num_nodes * graph.num_features * itemsize
    for tier, of_machine, of_device in (("uva", rows, 0), ("device", 0, rows), ("auto", 0, 0), ("host", 0, 0)):
        config = configured(hardware={"workers": 4}, feature_store={"tier": tier, "dtype": dtype, "memory": "ram"})
        needs = {need.what: need for need in estimated(config, graph, 0).needs}
        shared = needs["pinned features that a machine's GPUs read"]
        assert (shared.num_bytes, shared.per_rank) == (of_machine, False)
        assert needs["features that the store holds on the GPU"].num_bytes == of_device
        assert needs["features that the store holds"].num_bytes == (0 if tier == "uva" else rows)


@pytest.mark.parametrize("topology", ["replicated", "partitioned"])
def test_edges_that_gpus_read_are_pinned_once_per_machine_or_part(topology):
    graph = nasty_graph()
    bounds, edges = graph.indptr.nbytes + 4 * graph.num_nodes, graph.indices.nbytes
    for tier, device, on_gpu, pinned in (
        ("uva", "auto", bounds, edges),
        ("device", "cuda", bounds + edges, 0),
        ("auto", "cuda", bounds + edges, 0),
        ("auto", "auto", None, None),
    ):
        config = configured(hardware={"workers": 4}, sampler={"tier": tier, "device": device, "topology": topology})
        needs = {need.what: need for need in estimated(config, graph, 0).needs}
        there, far = (
            needs.get(what) for what in ("topology for sampling on a GPU", "pinned edges that a machine's GPUs read")
        )
        assert (None if there is None else there.num_bytes) == on_gpu
        if far is not None:
            own = topology == "partitioned"
            assert (far.num_bytes, far.per_rank) == (-(-pinned // 4) if own else pinned, own)


def test_offload_pins_rows_of_some_chunks_on_a_gpu():
    graph, budget, found = nasty_graph(), 200_000, {}
    for device, options in (("cpu", {}), ("cuda", {}), ("cuda", {"chunks": None, "device_memory": budget})):
        config = configured(
            hardware={"device": device, "workers": 2},
            sampler={"_target_": "gnnexp.samplers.full.FullOptions", "fanouts": None},
            train={"batch_size": None},
            paradigm={"_target_": "gnnexp.paradigms.offload.Offload", **options},
        )
        config["sampler"].pop("fanouts")
        needs = {need.what: need for need in estimated(config, graph, 0).needs}
        found[device, bool(options)] = needs["pinned memory through which rows cross"].num_bytes
    assert found["cpu", False] == 0 and found["cuda", True] <= 10 * budget
    assert 0 < found["cuda", False] <= found["cuda", True] <= 10 * graph.num_nodes * 8 * max(graph.num_features, 16)


def test_a_sharded_cache_holds_each_row_once():
    cache = {"_target_": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions", "capacity": 1.0}
    config = configured(hardware={"workers": 4}, feature_store={"cache": cache})
    graph = nasty_graph()
    (need,) = [need for need in estimated(config, graph, 0).needs if need.what == "feature cache"]
    assert graph.features is not None
    assert need.num_bytes == -(-graph.num_nodes // 4) * graph.features.shape[1] * 8


def test_the_files_of_evaluation_are_there_once_per_machine():
    """Of two layers of 60 vertices: 16 columns, 8 bytes."""
    for nodes, workers in ((1, 1), (1, 4), (2, 2)):
        changes = {"hardware": {"nodes": nodes, "workers": workers}}
        ram, files = (of(configured(train={"eval_memory": memory}, **changes)) for memory in (1 << 30, 4000))
        assert files["disk"] - ram["disk"] == nodes * 2 * 60 * 16 * 8


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"model": {"hidden": 512}}, "device"),
        ({"train": {"dtype": "float64", "batch_size": 30}}, "device"),
        ({"sampler": {"device": "cuda"}}, "device"),
        ({"sampler": {"prefetch": 9}, "train": {"overlap": True}}, "device"),
        ({"train": {"checkpoints_kept": 9}}, "disk"),
        (
            {
                "feature_store": {
                    "cache": {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 1.0}
                }
            },
            "device",
        ),
        ({"feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}}, "host"),
    ],
)
def test_what_is_asked_for_costs(changes, place):
    large = {"num_nodes": 3000, "num_edges": 60000}
    assert of(configured(**changes), **large)[place] > of(configured(), **large)[place]


def test_a_batch_is_no_larger_than_the_graph():
    found = of(configured(sampler={"fanouts": [10**6, 10**6]}, train={"batch_size": None}))
    assert found["device"] < 10**7


def full_graph(workers: int, paradigm: dict[str, Any]) -> dict[str, int]:
    """Device bytes by line."""
    config = full_config("gcn", paradigm)
    config["partitioner"] = {"_target_": "gnnexp.partitioners.range.RangePartitioner"}
    config["hardware"] = {**config["hardware"], "workers": workers}
    found = estimated(config, nasty_graph(3000, 60000), graph_files=0)
    return {need.what: need.num_bytes for need in found.needs if need.place == "device"}


def test_full_graph_training_holds_its_share_once():
    """By vertices a part of the edges and its halo, with cached halos all of both; by columns all edges, fewer rows."""
    graph = nasty_graph(3000, 60000)
    one, four = (full_graph(workers, {"_target_": VERTEX}) for workers in (1, 4))
    topology = f"topology of {graph.num_edges:,} edges, with its transpose"
    assert one[topology] == 16 * graph.num_edges + 40 * graph.num_nodes
    assert not any("batches" in name for name in one), "nothing is drawn, nothing is ahead"
    assert four["topology of 15,000 edges, with its transpose"] == 16 * 15000 + 40 * 3000, "its halo is everybody"
    cached = full_graph(4, {"_target_": VERTEX, "dependency": "cache"})
    assert sum(cached.values()) > sum(one.values()), "every rank has the whole graph, and its part once more"
    columns = full_graph(4, {"_target_": TENSOR})
    assert columns[topology] == 16 * graph.num_edges + 40 * 2 * 750
    assert columns["features of 1,500 vertices"] == 1500 * graph.num_features * 8


def averaged(parts: Parts | None, **changes: Any) -> dict[tuple[str, str], int]:
    """Bytes by place and line, of model averaging over 5 parts on 2 ranks."""
    config = configured(hardware={"workers": 2}, train={"batch_size": 40, "dtype": "float32"}, **changes)
    config["paradigm"] = {"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging"}
    config["partitioner"]["num_parts"] = 5
    found = estimated(config, nasty_graph(3000, 60000), 0, parts)
    return {(need.place, need.what): need.num_bytes for need in found.needs}


def test_model_averaging_holds_two_parts_not_the_graph():
    """The largest one and the next largest, with their samplers; two or three models; batches of 40 / 5 targets."""
    sizes = [PartSizes(600 + 10 * part, 600, 20_000 + part, 300) for part in range(5)]
    found, graph = averaged(Parts(Path(), tuple(sizes), True)), nasty_graph(3000, 60000)
    topology = sum(8 * (size.vertices + 1) + 4 * size.edges + 4 * size.vertices + 8 * 600 for size in sizes[3:])
    assert found["host", "topology of 2 parts"] == topology
    assert found["host", "the sampler's tables of vertices"] == 4 * (630 + 640)
    assert found["host", "cutting the parts"] == 9 * 3000 + 22 * 20_004
    assert found["shared", "features of parts, mapped"] == 4 * 13 * (630 + 640)
    parameters = 4 * 2 * (13 * 16 + 16 + 16 * 4 + 4)
    assert found["device", "3 models of parts"] == 5 * 3 * parameters
    assert found["disk", "checkpoints"] == 3 * parameters * 7 * 4, "of the average, and of 3 models on each of 2 ranks"
    edges, inputs = 8 * 4 + 40 * 3, 8 + 8 * 4 + 40 * 3
    assert found["device", f"1 batches: blocks of {edges} edges each"] == 8 * edges
    assert found["device", f"1 batches: features of {inputs} vertices each"] == inputs * 4 * 13
    in_memory = averaged(Parts(Path(), tuple(sizes), True), feature_store={"memory": "ram"})
    assert in_memory["host", "features that the store holds"] == (630 + 640) * 13 * 4
    least = averaged(None)
    assert least["host", "topology of 2 parts"] == 2 * (8 * 601 + 4 * -(-graph.num_edges // 5) + 12 * 600)
    assert least["host", "topology of 2 parts"] < topology, "even parts without halo: none can be smaller"


def test_a_shortage_names_every_line_and_the_fix(tmp_path):
    config = configured(hardware={"device_memory": 1000, "device": "cuda"})
    experiment = experiment_in(config)
    (problem,) = memory_problems(estimated(config, nasty_graph()), experiment, tmp_path / "run")
    assert "device memory" in str(problem.value) and "activations" in problem.allowed
    assert "preflight=warn" in problem.fix


def test_sizes_in_words():
    assert [as_text(n) for n in (12, 1500, 2.5e6, 3e9, 4e15)] == ["12 B", "1.5 KB", "2.5 MB", "3.0 GB", "4000.0 TB"]


@pytest.mark.slow
def test_the_estimate_is_near_what_a_run_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    shape = ["dataset=dcsbm", "dataset.shape=products_like", "dataset.scale=0.02", "hardware.workers=1"]
    run = [*shape, "model.hidden=128", "train.batch_size=1024", "train.epochs=2", "train.eval_every=0", "tracker=none"]
    assert run_command(["run", *run, "hydra.run.dir=run"]) == 0
    assert run_command(["run", *run, "hydra.run.dir=none", "hardware.device_memory=1000"]) == 2
    done = read_run(tmp_path / "run")
    from gnnexp.files.cache import cache_root
    from gnnexp.preparation.artifacts import prepare_graph

    experiment = experiment_in(done.config)
    graph, _ = prepare_graph(experiment.dataset, cache_root())
    found = estimated(done.config, graph)
    measured = done.median("memory/host_peak_bytes")
    assert 0.4 * measured < found.total("host") + graph.features.numel() * 4 < 4 * measured
