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
from gnnexp.datasets.formats.dgl.arrays import DglArrays, arrays_of_graph
from gnnexp.datasets.formats.dgl.dgl_graph import DglGraph
from gnnexp.datasets.formats.dgl.dgl_partitions import DglPartitions
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.partitioners.stored import StoredPartitioner

os.environ.setdefault("DGLBACKEND", "pytorch")
dgl = pytest.importorskip("dgl")


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "in_a_process_of_its_own" not in request.node.name:  # a damaged file may abort DGL's process
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
    graph = dgl.heterograph(
        {
            ("author", "writes", "paper"): (draw.integers(0, 20, 80), draw.integers(0, 30, 80)),
            ("paper", "cites", "paper"): (draw.integers(0, 30, 90), draw.integers(0, 30, 90)),
        },
        num_nodes_dict={"author": 20, "paper": 30},
    )
    graph.nodes["paper"].data["feat"], graph.nodes["paper"].data["label"] = torch.rand(30, 2), torch.arange(30) % 3
    graph.nodes["author"].data["h"] = torch.rand(20, 5)
    graph.edges["writes"].data["w"] = torch.rand(80)
    return graph


def divided(graph: Any, folder: Path, parts: int, method: str = "random", *, ids: bool = True, **options: Any) -> Path:
    """A folder of DistDGL. `ids` keeps the original ids, under GraphStorm's names."""
    found = dgl.distributed.partition_graph(
        graph, "mine", parts, str(folder), part_method=method, return_mapping=True, **options
    )
    for name, mapping in zip(("node_mapping", "edge_mapping"), found, strict=True):
        if ids:
            torch.save(mapping, folder / f"{name}.pt")
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
def test_the_graph_is_the_one_before_its_partitioning(
    make: Any, parts: int, method: str, hops: int, tmp_path: Path
) -> None:
    graph = make()
    whole = DglPartitions(path=str(divided(graph, tmp_path, parts, method, num_hops=hops))).whole()
    assert_same(whole.arrays, arrays_of_graph(graph))
    assert whole.owners.shape == (graph.num_nodes(),) and np.unique(whole.owners).size == parts
    assert "no original ids" not in " ".join(whole.notes)


def test_it_trains_as_the_graph_of_the_file(tmp_path: Path) -> None:
    graph = typed()
    dgl.save_graphs(str(tmp_path / "whole.bin"), graph)
    one = DglGraph(path=str(tmp_path / "whole.bin"), merge_weights="sum").load()
    other = DglPartitions(path=str(divided(graph, tmp_path / "parts", 2)), merge_weights="sum").load()
    for name in ("indptr", "indices", "edge_types", "edge_weights", "labels", "node_types", "features"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.splits.train, other.splits.train)


def test_the_parts_are_those_of_dgl(tmp_path: Path) -> None:
    folder = divided(homogeneous(), tmp_path, 2, "metis")
    owners, ids = DglPartitions(path=str(folder)).whole().owners, torch.load(folder / "node_mapping.pt")
    for part in range(2):
        own = dgl.load_graphs(str(folder / f"part{part}" / "graph.dgl"))[0][0]
        inner = own.ndata[dgl.NID][own.ndata["inner_node"].bool()]
        assert np.flatnonzero(owners == part).tolist() == sorted(ids[inner].tolist())


def test_the_parts_can_be_trained_with(tmp_path: Path) -> None:
    folder, out = divided(typed(), tmp_path / "parts", 2), tmp_path / "out"
    overrides = [f"dataset.path={folder}", "dataset.symmetrize=false", "dataset.merge_weights=mean"]
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
    content = json.loads((folder / "mine.json").read_text())
    for name, file, ranges in (("node_mapping", "orig_nids", "node_map"), ("edge_mapping", "orig_eids", "edge_map")):
        mapping, place = torch.load(folder / f"{name}.pt"), dict.fromkeys(content[ranges], 0)
        (folder / f"{name}.pt").unlink()
        named = {":".join(kind) if isinstance(kind, tuple) else kind: values for kind, values in mapping.items()}
        for part in range(2):
            found = {}
            for kind, spans in content[ranges].items():
                count = spans[part][1] - spans[part][0]
                found[kind] = named[kind][place[kind] : place[kind] + count]
                place[kind] += count
            dgl.data.utils.save_tensors(str(folder / f"part{part}" / f"{file}.dgl"), found)
    assert_same(DglPartitions(path=str(folder)).whole().arrays, arrays_of_graph(graph))


def test_original_ids_in_the_parts_of_older_versions(tmp_path: Path) -> None:
    """DGL before 1.0 keeps the ids of the graph without types as `orig_id`."""
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2)
    ids = {name: torch.load(folder / f"{name}_mapping.pt") for name in ("node", "edge")}

    def kept(part: Path, own: Any) -> None:
        own.ndata["orig_id"], own.edata["orig_id"] = ids["node"][own.ndata[dgl.NID]], ids["edge"][own.edata[dgl.EID]]

    rewritten(folder, kept)
    for name in ids:
        (folder / f"{name}_mapping.pt").unlink()
    assert_same(DglPartitions(path=str(folder)).whole().arrays, arrays_of_graph(graph))


def test_without_original_ids_the_graph_has_those_of_distdgl(tmp_path: Path) -> None:
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2, ids=False)
    found = DglPartitions(path=str(folder), symmetrize=False, self_loops="keep", duplicates="keep").load()
    assert any("no original ids" in note for note in found.notes) and found.num_edges == 160
    assert found.in_degree.sort().values.tolist() == graph.in_degrees().sort().values.tolist()
    assert found.features is not None and found.labels is not None and found.edge_weights is not None
    weights = {
        (int(graph.ndata["feat"][u, 0]), int(graph.ndata["feat"][v, 0])): set()
        for u, v in zip(*(ends.tolist() for ends in graph.edges()), strict=True)
    }  # type: dict[tuple[int, int], set[float]]
    for u, v, weight in zip(*(ends.tolist() for ends in graph.edges()), graph.edata["w"].tolist(), strict=True):
        weights[int(graph.ndata["feat"][u, 0]), int(graph.ndata["feat"][v, 0])].add(weight)
    columns = found.indices.tolist(), found.destinations().tolist(), found.edge_weights.tolist()
    assert all(
        weight in weights[int(found.features[u, 0]), int(found.features[v, 0])]  # type: ignore[index]
        for u, v, weight in zip(*columns, strict=True)
    )


@pytest.mark.parametrize("content", [torch.arange(39), torch.zeros(40, dtype=torch.int64), {"x": torch.arange(40)}, 3])
def test_a_wrong_mapping_is_an_error(content: Any, tmp_path: Path) -> None:
    folder = divided(homogeneous(), tmp_path, 2)
    torch.save(content, folder / "node_mapping.pt")
    with pytest.raises(DataError, match=r"node_mapping\.pt"):
        DglPartitions(path=str(folder)).load()


def test_the_old_form_of_ranges_is_read(tmp_path: Path) -> None:
    graph = homogeneous()
    folder = divided(graph, tmp_path, 2)
    content = json.loads((folder / "mine.json").read_text())
    for name in ("node_map", "edge_map"):
        [ranges] = content[name].values()
        content[name] = [end for _, end in ranges]
    del content["ntypes"], content["etypes"]
    (folder / "mine.json").write_text(json.dumps(content))
    assert_same(DglPartitions(path=str(folder)).whole().arrays, arrays_of_graph(graph))


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (swapped, "each once"),
        (lambda one: shutil.rmtree(one / "part1"), "part1"),
        (lambda one: shutil.copy(one / "part0" / "node_feat.dgl", one / "part1" / "node_feat.dgl"), "_N, (feat|label)"),
        (config_changed(num_nodes=41), "num_nodes 41"),
        (config_changed(node_map={"_N": [[0, 30], [30, 40]]}), r"each once|must be|needed"),
        (config_changed(node_map={"_N": [[0, 30], [20, 30]]}), "gaps or overlaps"),
        (config_changed(num_parts=3), r"ranges of the shape \[2, 2\]"),
        (config_changed(node_map="node_map.npy"), "mine.json"),
        (
            config_changed(
                **{"part-0": {"part_graph": "part0/graph.dgl", "node_feats": "../x.dgl", "edge_feats": "x.dgl"}}
            ),
            r"mine\.json.*\.\./x\.dgl.*must be a place in",
        ),
        (config_changed(num_parts=10**9), "num_parts"),
        (lambda one: (one / "mine.json").unlink(), "no JSON file"),
    ],
)
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


def test_a_damaged_part_is_an_error_in_a_process_of_its_own(tmp_path: Path) -> None:
    folder = divided(homogeneous(), tmp_path, 2)
    cut(folder)
    with pytest.raises(DataError, match="DGL cannot read"):
        DglPartitions(path=str(folder)).load()


def loaded(place: Path) -> tuple[str, Graph]:
    """With the rule for parallel edges that the command of `gnnexp data` has."""
    overrides = list(recognised(place, classes_of("dataset", own_folders())).overrides)
    return overrides[0], build(compose([*overrides, "dataset.merge_weights=sum"]).config["dataset"], Dataset).load()


def test_the_printed_command_loads_the_graph(tmp_path: Path) -> None:
    folder = divided(homogeneous(), tmp_path, 2)
    for place in (folder, folder / "mine.json"):
        chosen, graph = loaded(place)
        assert chosen == "dataset=dgl_partitions" and graph.num_nodes == 40
