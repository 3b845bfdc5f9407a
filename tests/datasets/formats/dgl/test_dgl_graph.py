"""Graphs that DGL itself saves are the same graphs in gnnexp; damaged files are errors, and end no process of ours."""

import os
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from dgl_here import read_here

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.dgl.dgl_graph import DglGraph, foreign_of_dgl
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import ConfigError, DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

os.environ.setdefault("DGLBACKEND", "pytorch")
dgl = pytest.importorskip("dgl")
ALONE = "in_a_process_of_its_own"
AS_IT_IS: dict[str, Any] = {"symmetrize": False, "self_loops": "keep", "duplicates": "keep"}


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if ALONE not in request.node.name:
        read_here(monkeypatch)


def load(path: Path, **options: Any) -> Graph:
    return DglGraph(path=str(path), **options).load()


def edges_of(graph: Graph) -> list[tuple[int, ...]]:
    """Sources, destinations, and types or weights, sorted."""
    more = [values for values in (graph.edge_types, graph.edge_weights) if values is not None]
    return sorted(zip(*(one.tolist() for one in (graph.indices, graph.destinations(), *more)), strict=True))


def small(vertices: int = 6) -> Any:
    graph = dgl.graph((torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 2, 3, 4, 1])), num_nodes=vertices)
    graph.ndata["feat"] = torch.arange(vertices * 2).reshape(vertices, 2).double()
    graph.ndata["label"] = torch.tensor([0, 1, 2, 0, -1, 1][:vertices])
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        graph.ndata[name] = (torch.arange(vertices) % 3 == number) & (graph.ndata["label"] >= 0)
    return graph


def typed() -> Any:
    graph = dgl.heterograph(
        {
            ("author", "writes", "paper"): ([0, 1, 1], [0, 0, 2]),
            ("paper", "cites", "paper"): ([0, 1], [1, 2]),
            ("author", "cites", "author"): ([0], [1]),
        },
        num_nodes_dict={"author": 2, "paper": 3},
    )
    graph.nodes["paper"].data["feat"] = torch.ones(3, 4)
    graph.nodes["author"].data["x"] = torch.full((2, 2), 2.0)
    graph.nodes["paper"].data["label"] = torch.tensor([1, 0, 1])
    graph.edges["writes"].data["w"] = torch.tensor([0.5, 1.5, 2.5])
    return graph


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_a_graph_keeps_edges_features_labels_and_masks(index: torch.dtype, tmp_path: Path) -> None:
    made = small().to(torch.device("cpu")).int() if index is torch.int32 else small()
    dgl.save_graphs(str(tmp_path / "graph.bin"), [made])
    graph = load(tmp_path / "graph.bin", **AS_IT_IS)
    assert edges_of(graph) == sorted([(0, 1), (1, 2), (2, 3), (3, 4), (0, 1)]) and graph.num_nodes == 6
    assert torch.equal(graph.features, small().ndata["feat"].float())  # type: ignore[arg-type]
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 2, 0, -1, 1] and graph.num_classes == 3
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [
        [0, 3],
        [1],
        [2, 5],
    ]
    assert graph.edge_types is None and graph.node_types is None and not graph.notes


def test_types_of_vertices_and_edges_are_kept(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "g.dgl"), typed())
    graph = load(tmp_path, **AS_IT_IS)
    assert graph.node_types is not None and graph.node_types.tolist() == [0, 0, 1, 1, 1]
    assert graph.edge_weights is not None and graph.edge_types is not None
    # DGL sorts types by name: (author, cites, author), (author, writes, paper), (paper, cites, paper).
    assert edges_of(graph) == sorted(
        [(0, 1, 0, 1.0), (0, 2, 1, 0.5), (1, 2, 1, 1.5), (1, 4, 1, 2.5), (2, 3, 2, 1.0), (3, 4, 2, 1.0)]
    )
    assert graph.labels is not None and graph.labels.tolist() == [-1, -1, 1, 0, 1]
    assert graph.num_features == 2 + 2 + 4
    folder = tmp_path / "made" / "graph"
    DglGraph(path=str(tmp_path), **AS_IT_IS).generate(folder)
    assert (
        '"author:cites:author"' in (folder / "names.json").read_text()
        and "paper:cites:paper" in (folder / "names.json").read_text()
    )


def test_a_graph_in_memory_is_the_graph_in_the_file(tmp_path: Path) -> None:
    found = foreign_of_dgl(typed(), weight="w")
    assert list(found.vertices) == ["author", "paper"] and found.num_nodes == 5
    weights = {one.name: None if one.weight is None else one.weight.tolist() for one in found.edges}
    assert weights == {"author:cites:author": None, "writes": [0.5, 1.5, 2.5], "paper:cites:paper": None}
    with pytest.raises(DataError, match=r"dataset\.label='kind'"):
        foreign_of_dgl(typed(), label="kind")


def test_one_of_several_graphs_is_chosen(tmp_path: Path) -> None:
    dgl.save_graphs(
        str(tmp_path / "g.bin"), [small(), dgl.graph(([0], [1])), small(5)], {"glabel": torch.tensor([0, 1, 0])}
    )
    assert load(tmp_path / "g.bin", graph=2).num_nodes == 5
    assert load(tmp_path / "g.bin", graph=1).notes == (
        "what is kept next to the graphs is not used: glabel",
        "graph 1 of 3 in the file",
    )
    for number in (3, -1):
        with pytest.raises(DataError, match="has the graphs 0 to 2"):
            load(tmp_path / "g.bin", graph=number)


def test_labels_of_file_the_only_graph_are_those_of_its_vertices(tmp_path: Path) -> None:
    made = small()
    del made.ndata["label"]
    dgl.save_graphs(str(tmp_path / "g.bin"), [made], {"labels": torch.tensor([0, 1, 0, 1, 0, 1])})
    graph = load(tmp_path / "g.bin")
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 0, 1, 0, 1]
    for name in ("train_mask", "val_mask", "test_mask"):
        del made.ndata[name]
    dgl.save_graphs(str(tmp_path / "g.bin"), [made], {"labels": torch.tensor([1])})
    assert load(tmp_path / "g.bin").labels is None


@pytest.mark.parametrize(
    ("values", "labels", "classes"),
    [
        (torch.tensor([0.0, 1.0, float("nan"), 2.0, 0.0, 1.0]), [0, 1, -1, 2, 0, 1], 3),
        (torch.tensor([[0], [1], [2], [0], [-100], [1]]), [0, 1, 2, 0, -1, 1], 3),
        (torch.tensor([0, 1, 2, 0, 3, 1], dtype=torch.uint8), [0, 1, 2, 0, 3, 1], 4),
        (torch.tensor([True, False] * 3), [1, 0, 1, 0, 1, 0], 2),
        (torch.tensor([[0, 1], [1, 1]] * 3).float(), [[0, 1], [1, 1]] * 3, 2),
    ],
)
def test_labels_of_all_dtypes(values: torch.Tensor, labels: list[Any], classes: int, tmp_path: Path) -> None:
    made = small()
    made.ndata["label"] = values
    dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    graph = load(tmp_path / "g.bin", split="random")
    assert graph.labels is not None and graph.labels.tolist() == labels and graph.num_classes == classes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_features_of_all_dtypes_and_shapes(dtype: torch.dtype, tmp_path: Path) -> None:
    made = small()
    made.ndata["feat"] = (torch.arange(6 * 4).reshape(6, 2, 2) % 2).to(dtype)
    try:
        dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    except Exception as error:  # DGL 1.1.3 saves no bool and no bfloat16
        pytest.skip(f"DGL does not save {dtype}: {error}")
    features = load(tmp_path / "g.bin").features
    assert isinstance(features, torch.Tensor) and torch.equal(features, torch.tensor([[0, 1, 0, 1.0]] * 6))


def test_names_may_be_others_and_what_is_not_used_is_said(tmp_path: Path) -> None:
    made = small()
    for name, other in (
        ("feat", "h0"),
        ("label", "kind"),
        ("train_mask", "tr"),
        ("val_mask", "va"),
        ("test_mask", "te"),
    ):
        made.ndata[other] = made.ndata.pop(name)
    made.ndata["masks"] = torch.eye(6)
    made.edata["time"] = torch.arange(5)
    dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    assert load(tmp_path / "g.bin", link_split={"val": 0.3, "test": 0.3}).labels is None
    names: dict[str, Any] = {"label": "kind", "features": "h0", "masks": {"train": "tr", "val": "va", "test": "te"}}
    graph = load(tmp_path / "g.bin", **names)
    assert graph.num_features == 2 and graph.splits.train.tolist() == [0, 3]
    assert graph.notes == (
        "data of the vertices _N that are not used: masks",
        "data of the edges _N:_E:_N that are not used: time",
    )
    with pytest.raises(DataError, match=r"features='nothing'.*\n.*\n.*label='none'"):
        load(tmp_path / "g.bin", features="nothing", label="none")


def test_two_names_that_may_be_meant_are_an_error(tmp_path: Path) -> None:
    made = small()
    made.ndata["y"], made.ndata["labels"] = made.ndata["label"], made.ndata.pop("label")
    dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    with pytest.raises(DataError, match=r"labels, y.*may be the label"):
        load(tmp_path / "g.bin")
    assert load(tmp_path / "g.bin", label="y").num_classes == 3


def test_a_mask_of_several_columns(tmp_path: Path) -> None:
    made = small()
    for name in ("train_mask", "val_mask", "test_mask"):
        made.ndata[name] = torch.stack([made.ndata[name], made.ndata[name].roll(1) & (torch.arange(6) != 4)], 1)
    dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    assert load(tmp_path / "g.bin", mask=1).splits.train.tolist() == [1]
    with pytest.raises(DataError, match=r"dataset\.mask=2"):
        load(tmp_path / "g.bin", mask=2)


def test_a_part_of_a_graph_has_the_ids_of_the_graph(tmp_path: Path) -> None:
    made = dgl.node_subgraph(small(), [5, 0, 1])
    dgl.save_graphs(str(tmp_path / "g.bin"), [made])
    folder = tmp_path / "made" / "graph"
    graph = DglGraph(path=str(tmp_path / "g.bin")).generate(folder)
    assert pq.read_table(folder / "ids_vertex.parquet").column("id").to_pylist() == [5, 0, 1]
    assert graph.num_nodes == 3 and not graph.notes


def test_reverses_in_the_file_are_told(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "g.bin"), dgl.transforms.AddReverse()(typed()))
    graph = load(tmp_path / "g.bin", symmetrize=False)
    assert any("rev_writes of writes" in note and "symmetrize=false" in note for note in graph.notes)


def test_the_smallest_graphs(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "g.bin"), dgl.graph(([0], [0]), num_nodes=1))
    graph = load(tmp_path / "g.bin", self_loops="keep", split="random")
    assert (graph.num_nodes, graph.num_edges, graph.features) == (1, 1, None)
    dgl.save_graphs(str(tmp_path / "g.bin"), dgl.graph(([], []), num_nodes=3))
    with pytest.raises(DataError, match="0 edges"):
        load(tmp_path / "g.bin")


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.masks"):
        DglGraph(masks={"training": "x"})
    with pytest.raises(DataError, match="there must be one"):
        load(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"no graph")
    with pytest.raises(DataError, match="begins with other bytes"):
        load(tmp_path / "x.bin")


def damaged(content: bytes, kind: str) -> bytes:
    if kind.startswith("cut"):
        return content[: int(len(content) * float(kind.removeprefix("cut ")))]
    if kind == "zeros":
        return content[:4104] + bytes(len(content) - 4104)
    if kind == "ones":
        return content[:4104] + b"\xff" * (len(content) - 4104)
    sizes = np.frombuffer(content[4104 : 4104 + (len(content) - 4104) // 8 * 8], "<u8").copy()
    sizes[(sizes > 0) & (sizes < 100)] = 1 << 40  # counts and lengths become huge
    return content[:4104] + sizes.tobytes() + content[4104 + sizes.nbytes :]


@pytest.mark.parametrize(
    "kind", ["cut 0.9", "huge", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cut 0.99", "zeros", "ones"))]
)
def test_a_damaged_file_is_an_error_in_a_process_of_its_own(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "g.bin"
    dgl.save_graphs(str(path), [small()])
    path.write_bytes(damaged(path.read_bytes(), kind))
    with pytest.raises(DataError, match=r"g\.bin.*DGL cannot read this file") as caught:
        load(path)
    assert "[bt]" not in str(caught.value) and "Stack trace" not in str(caught.value)


def test_a_graph_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "g.bin"), [small()])
    assert load(tmp_path / "g.bin").num_classes == 3


def test_a_false_number_of_graphs_is_an_error_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "g.bin"
    dgl.save_graphs(str(path), [small()])
    path.write_bytes(path.read_bytes()[:-24] + struct.pack("<3Q", 0, 4112, 16))
    with pytest.raises(DataError, match=r"g\.bin"):
        load(path, graph=7)


def test_an_end_by_a_signal_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be with damaged files: nothing of that is ours."""
    dgl.save_graphs(str(tmp_path / "g.bin"), [small()])
    ended = subprocess.CompletedProcess([], -signal.SIGABRT, "", "")
    monkeypatch.setattr("gnnexp.datasets.formats.dgl.reader.run_reader", lambda folder: ended)
    with pytest.raises(DataError, match="signal 6': DGL cannot read this file"):
        load(tmp_path / "g.bin")


def test_the_printed_command_loads_the_graph(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "my graph.bin"), [small()])
    for place in (tmp_path, tmp_path / "my graph.bin"):
        overrides = recognised(place, classes_of("dataset", own_folders())).overrides
        assert overrides[0] == "dataset=dgl_graph"
        assert build(compose(list(overrides)).config["dataset"], Dataset).load().num_classes == 3


@pytest.mark.slow
def test_a_run(tmp_path: Path) -> None:
    dgl.save_graphs(str(tmp_path / "g.bin"), [typed()])
    assert (
        run_command(
            [
                "run",
                "dataset=dgl_graph",
                f"dataset.path={tmp_path}/g.bin",
                "dataset.weight=null",
                "model=rgcn",
                "train.epochs=1",
                "hardware.workers=1",
                "tracker=none",
                f"hydra.run.dir={tmp_path / 'run'}",
            ]
        )
        == 0
    )


def test_without_dgl_the_message_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dgl.save_graphs(str(tmp_path / "g.bin"), [small()])
    monkeypatch.setattr("gnnexp.datasets.formats.dgl.reader.is_installed", lambda package: False)
    with pytest.raises(ConfigError, match=r"needs the package dgl.*\n.*pip install 'gnnexp\[dgl\]'"):
        load(tmp_path / "g.bin")
