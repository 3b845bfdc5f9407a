"""What DistDGL divides comes together again: the same edges, in the same order, with the original ids."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dgl_here import read_here

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.dgl import save_partition
from gnnexp.datasets.formats.dgl.arrays import DglArrays, arrays_of
from gnnexp.datasets.formats.dgl_graph import DglGraph
from gnnexp.datasets.formats.dgl_partitions import DglPartitions
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.partitioners.stored import StoredPartitioner

os.environ.setdefault("DGLBACKEND", "pytorch")
dgl = pytest.importorskip("dgl")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_here(monkeypatch)


def homogeneous() -> Any:
    draw = np.random.default_rng(3)
    graph = dgl.graph((draw.integers(0, 40, 160), draw.integers(0, 40, 160)), num_nodes=40)
    graph.ndata["feat"], graph.ndata["label"] = torch.arange(120.0).reshape(40, 3), torch.arange(40) % 4
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        graph.ndata[name] = torch.arange(40) % 3 == number
    graph.edata["w"] = torch.arange(1.0, 161)
    return graph


def typed() -> Any:
    draw = np.random.default_rng(4)
    graph = dgl.heterograph({
        ("author", "writes", "paper"): (draw.integers(0, 20, 80), draw.integers(0, 30, 80)),
        ("paper", "cites", "paper"): (draw.integers(0, 30, 90), draw.integers(0, 30, 90)),
    }, num_nodes_dict={"author": 20, "paper": 30})
    graph.nodes["paper"].data["feat"], graph.nodes["paper"].data["label"] = torch.rand(30, 2), torch.arange(30) % 3
    graph.nodes["author"].data["h"] = torch.rand(20, 5)
    graph.edges["writes"].data["w"] = torch.rand(80)
    return graph


def divided(graph: Any, folder: Path, parts: int, method: str = "random", **options: Any) -> Path:
    dgl.distributed.partition_graph(graph, "mine", parts, str(folder), part_method=method, **options)
    return folder


def assert_same(found: DglArrays, wanted: DglArrays) -> None:
    assert found.counts == wanted.counts
    for kind in wanted.counts:
        assert found.nodes[kind].keys() == wanted.nodes[kind].keys()
        assert all(np.array_equal(found.nodes[kind][name], values) for name, values in wanted.nodes[kind].items())
    for one, other in zip(found.edges, wanted.edges, strict=True):
        assert one.types == other.types and one.data.keys() == other.data.keys()
        assert np.array_equal(one.source, other.source) and np.array_equal(one.destination, other.destination)
        assert all(np.array_equal(one.data[name], values) for name, values in other.data.items())


@pytest.mark.parametrize("make", [homogeneous, typed])
@pytest.mark.parametrize(("parts", "method", "hops"), [(1, "random", 1), (3, "random", 1), (2, "metis", 2)])
def test_the_graph_is_the_one_before_its_partitioning(make: Any, parts: int, method: str, hops: int, tmp_path: Path
                                                      ) -> None:
    graph = make()
    whole = DglPartitions(path=str(divided(graph, tmp_path, parts, method, num_hops=hops))).whole()
    assert_same(whole.arrays, arrays_of(graph))
    assert whole.owners.shape == (graph.num_nodes(),) and np.unique(whole.owners).size == parts
    assert "no original ids" not in " ".join(whole.notes)


def test_it_trains_as_the_graph_of_the_file(tmp_path: Path) -> None:
    graph = typed()
    dgl.save_graphs(str(tmp_path / "whole.bin"), graph)
    one = DglGraph(path=str(tmp_path / "whole.bin")).load()
    other = DglPartitions(path=str(divided(graph, tmp_path / "parts", 2))).load()
    for name in ("indptr", "indices", "edge_types", "edge_weights", "labels", "node_types", "features"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.splits.train, other.splits.train)


def test_the_parts_are_those_of_dgl(tmp_path: Path) -> None:
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2, "metis")
    owners = DglPartitions(path=str(folder)).whole().owners
    for part in range(2):
        own = dgl.load_graphs(str(folder / f"part{part}" / "graph.dgl"))[0][0]
        inner = own.ndata["orig_id"][own.ndata["inner_node"].bool()]
        assert np.flatnonzero(owners == part).tolist() == sorted(inner.tolist())


def test_the_parts_can_be_trained_with(tmp_path: Path) -> None:
    folder, out = divided(typed(), tmp_path / "parts", 2), tmp_path / "out"
    overrides = [f"dataset.path={folder}", "dataset.symmetrize=false"]
    assert save_partition.main([str(out), *overrides]) == 0
    dataset = build(compose(["dataset=dgl_partitions", *overrides]).config["dataset"], Dataset)
    found = StoredPartitioner(str(out)).partition(dataset.load(), 2, dataset.key())
    assert found.part_sizes().sum() == 50 and found.method == "distdgl_random"
    assert save_partition.main([]) == save_partition.main([str(out), "path=x"]) == 2
    assert save_partition.main([str(out), "dataset.path=/nowhere"]) == 2


def rewritten(folder: Path, change: Any) -> None:
    """Change the graph of each part."""
    for path in folder.glob("part*/graph.dgl"):
        graph = dgl.load_graphs(str(path))[0][0]
        change(path.parent, graph)
        dgl.save_graphs(str(path), [graph])


def test_original_ids_of_the_distributed_pipeline(tmp_path: Path) -> None:
    """DGL's tools write `orig_nids.dgl` and `orig_eids.dgl` with the ids of each type."""
    graph = typed()
    folder = divided(graph, tmp_path, 2)

    def moved(part: Path, own: Any) -> None:
        for name, data, inner, kinds, starts in (
            ("orig_nids", own.ndata, "inner_node", graph.ntypes, [0, 20]),
            ("orig_eids", own.edata, "inner_edge", [":".join(one) for one in graph.canonical_etypes], [0, 80]),
        ):
            ids, is_own = data.pop("orig_id"), data[inner].bool()
            found = {kind: ids[is_own & (data[dgl.NTYPE] == number)] - start
                     for number, (kind, start) in enumerate(zip(kinds, starts, strict=True))}
            dgl.data.utils.save_tensors(str(part / f"{name}.dgl"), found)

    rewritten(folder, moved)
    assert_same(DglPartitions(path=str(folder)).whole().arrays, arrays_of(graph))


def test_without_original_ids_the_graph_has_those_of_distdgl(tmp_path: Path) -> None:
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2)
    rewritten(folder, lambda part, own: (own.ndata.pop("orig_id"), own.edata.pop("orig_id")))
    found = DglPartitions(path=str(folder), symmetrize=False, self_loops="keep", duplicates="keep").load()
    assert any("no original ids" in note for note in found.notes) and found.num_edges == 160
    assert found.in_degree.sort().values.tolist() == graph.in_degrees().sort().values.tolist()


def test_the_old_form_of_ranges_is_read(tmp_path: Path) -> None:
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2)
    content = json.loads((folder / "mine.json").read_text())
    for name in ("node_map", "edge_map"):
        [ranges] = content[name].values()
        content[name] = [end for _, end in ranges]
    del content["ntypes"], content["etypes"]
    (folder / "mine.json").write_text(json.dumps(content))
    assert_same(DglPartitions(path=str(folder)).whole().arrays, arrays_of(graph))


def config_changed(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "mine.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def cut(folder: Path) -> None:
    path = folder / "part1" / "graph.dgl"
    path.write_bytes(path.read_bytes()[:-100])


def swapped(folder: Path) -> None:
    shutil.copy(folder / "part0" / "graph.dgl", folder / "part1" / "graph.dgl")


@pytest.mark.parametrize(("change", "said"), [
    (cut, "DGL cannot read"), (swapped, "each once"), (lambda one: shutil.rmtree(one / "part1"), "part1"),
    (lambda one: shutil.copy(one / "part0" / "node_feat.dgl", one / "part1" / "node_feat.dgl"), "_N, (feat|label)"),
    (config_changed(num_nodes=41), "num_nodes 41"),
    (config_changed(node_map={"_N": [[0, 30], [30, 40]]}), r"each once|must be|needed"),
    (config_changed(node_map={"_N": [[0, 30], [20, 30]]}), "gaps or overlaps"),
    (config_changed(num_parts=3), "part-2"), (config_changed(node_map="node_map.npy"), "mine.json"),
    (config_changed(num_parts=10**9), "num_parts"), (lambda one: (one / "mine.json").unlink(), "no JSON file"),
])
def test_what_does_not_fit_together_is_an_error(change: Any, said: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    graph = homogeneous()
    folder = divided(dgl.node_subgraph(graph, draw.permutation(40)), tmp_path, 2)
    sizes = [end - first for first, end in json.loads((folder / "mine.json").read_text())["node_map"]["_N"]]
    if sizes[0] == sizes[1] and "feat" in said:
        pytest.skip("both parts have one size")
    change(folder)
    with pytest.raises(DataError, match=said):
        DglPartitions(path=str(folder)).load()


def loaded(place: Path) -> tuple[str, Graph]:
    overrides = list(recognised(place, classes_of("dataset", own_folders())).overrides)
    return overrides[0], build(compose(overrides).config["dataset"], Dataset).load()


def test_the_printed_command_loads_the_graph(tmp_path: Path) -> None:
    folder = divided(homogeneous(), tmp_path, 2)
    for place in (folder, folder / "mine.json"):
        chosen, graph = loaded(place)
        assert chosen == "dataset=dgl_partitions" and graph.num_nodes == 40
