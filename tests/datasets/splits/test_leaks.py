"""Every reader of links: no held-out pair of vertices is an edge of the graph, in either direction.

The data are purchases `buys`, their reverses `rev_buys` and, in some of the files, a relation `knows` with both
directions. Leaks are counted with NumPy and sets of pairs of vertices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import yaml
from dgl_here import read_here
from gnn_gconstruct.graphstorm import GraphStorm

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.formats.dgl.dgl_graph import DglGraph
from gnnexp.datasets.formats.dgl.dgl_partitions import DglPartitions
from gnnexp.datasets.formats.dgl.graphbolt import GraphBolt
from gnnexp.datasets.formats.matrix import AdjacencyMatrix
from gnnexp.datasets.formats.networkx_files import NetworkX
from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.datasets.published.ogb import Ogb
from gnnexp.datasets.published.triples import Triples
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.graph.graph import Graph

SHARES = {"val": 0.1, "test": 0.2}
USERS, ITEMS = 15, 20
_DRAW = np.random.default_rng(5)
_CELLS = _DRAW.permutation(USERS * ITEMS)[:105]
BUYS = np.stack([_CELLS // ITEMS, _CELLS % ITEMS])  # users, items
_CELLS = _DRAW.permutation(USERS * USERS)[:30]
_KNOWS = np.stack([_CELLS // USERS, _CELLS % USERS])[:, _CELLS // USERS != _CELLS % USERS]
KNOWS = np.unique(np.concatenate([_KNOWS, _KNOWS[::-1]], axis=1), axis=1)  # users
REVERSED = BUYS[::-1, _DRAW.permutation(105)[:104]]  # one is missing
ROWS = [
    *((f"u{u}", "buys", f"i{i}") for u, i in BUYS.T),
    *((f"i{i}", "rev_buys", f"u{u}") for i, u in REVERSED.T),
    *((f"u{u}", "knows", f"u{v}") for u, v in KNOWS.T),
]


def leaks(graph: Graph) -> dict[str, int]:
    """The number of held-out links whose ends are joined by an edge, in either direction."""
    ends = np.stack([graph.indices.numpy(), graph.destinations().numpy()], axis=1)
    edges = {(int(u), int(v)) for u, v in np.concatenate([ends, ends[:, ::-1]])}
    return {name: sum((one[0], one[-1]) in edges for one in graph.links[name].tolist()) for name in ("valid", "test")}


def tables_column(folder: Path, **options: Any) -> Graph:
    (folder / "edges.csv").write_text("src,relation,dst\n" + "".join(f"{','.join(row)}\n" for row in ROWS))
    return Tables(path=str(folder), **options).load()


def tables_by_time(folder: Path, **options: Any) -> Graph:
    """A purchase and its reverse have other times: the oldest counts."""
    times = np.random.default_rng(3).permutation(len(ROWS))
    (folder / "edges.csv").write_text(
        "src,relation,dst,time\n" + "".join(f"{','.join(row)},{time}\n" for row, time in zip(ROWS, times, strict=True))
    )
    return Tables(path=str(folder), split="time", **options).load()


def tables_each(folder: Path, **options: Any) -> Graph:
    edges = {}
    for name, ends in (("buys", ("user", "item")), ("rev_buys", ("item", "user")), ("knows", ("user", "user"))):
        rows = "".join(f"{u},{v}\n" for u, kind, v in ROWS if kind == name)
        (folder / f"{name}.csv").write_text(f"src,dst\n{rows}")
        edges[name] = {"table": f"{name}.csv", "from": ends[0], "to": ends[1]}
    return Tables(path=str(folder), edges=edges, **options).load()


def edge_list(folder: Path, **options: Any) -> Graph:
    parts = [
        np.stack([rows[0] + start, rows[1] + end, np.full(rows.shape[1], kind)], axis=1)
        for kind, (rows, start, end) in enumerate(((BUYS, 0, USERS), (REVERSED, USERS, 0), (KNOWS, 0, 0)))
    ]
    np.save(folder / "edges.npy", np.concatenate(parts))
    return EdgeList(path=str(folder / "edges.npy"), **options).load()


def edge_list_inverse(folder: Path, **options: Any) -> Graph:
    return edge_list(folder, inverse_relations=True, **options)


def edge_list_of_pairs(folder: Path, **options: Any) -> Graph:
    parts = [np.stack([BUYS[0], BUYS[1] + USERS]), np.stack([REVERSED[0] + USERS, REVERSED[1]])]
    np.save(folder / "edges.npy", np.concatenate(parts, axis=1).T)
    return EdgeList(path=str(folder / "edges.npy"), **options).load()


def rmat(folder: Path, **options: Any) -> Graph:
    return Rmat(
        num_nodes=200, num_edges=900, relations=3, inverse_relations=options.pop("symmetrize"), **options
    ).load()


def matrix(folder: Path, **options: Any) -> Graph:
    scipy.sparse.save_npz(folder / "m.npz", scipy.sparse.csr_array((np.ones(KNOWS.shape[1]), tuple(KNOWS)), (15, 15)))
    return AdjacencyMatrix(path=str(folder / "m.npz"), **options).load()


def networkx_file(folder: Path, **options: Any) -> Graph:
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    graph.add_edges_from((u, v) for u, _, v in ROWS)
    nx.write_graphml(graph, folder / "g.graphml")
    return NetworkX(path=str(folder / "g.graphml"), **options).load()


def pyg_file(folder: Path, **options: Any) -> Graph:
    """As `HeteroData.to_dict` gives it."""

    def edges(rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {"edge_index": torch.from_numpy(rows.copy())}

    content = {
        "user": {"num_nodes": USERS},
        "item": {"num_nodes": ITEMS},
        ("user", "buys", "item"): edges(BUYS),
        ("item", "rev_buys", "user"): edges(REVERSED),
        ("user", "knows", "user"): edges(KNOWS),
    }
    torch.save(content, folder / "g.pt")
    return Pyg(path=str(folder / "g.pt"), **options).load()


def dgl_of(folder: Path) -> Any:
    dgl = pytest.importorskip("dgl")
    return dgl.heterograph(
        {
            ("user", "buys", "item"): tuple(BUYS),
            ("item", "rev_buys", "user"): tuple(REVERSED.copy()),
            ("user", "knows", "user"): tuple(KNOWS),
        },
        num_nodes_dict={"user": USERS, "item": ITEMS},
    )


def dgl_graph(folder: Path, **options: Any) -> Graph:
    graph = dgl_of(folder)
    import dgl

    dgl.save_graphs(str(folder / "g.bin"), [graph])
    return DglGraph(path=str(folder / "g.bin"), **options).load()


def dgl_partitions(folder: Path, **options: Any) -> Graph:
    graph = dgl_of(folder)
    import dgl

    dgl.distributed.partition_graph(graph, "mine", 2, str(folder), part_method="random")
    return DglPartitions(path=str(folder), **options).load()


def graphstorm(folder: Path, **options: Any) -> Graph:
    tables_each(folder, symmetrize=False)
    edges = [
        {
            "relation": relation,
            "format": {"name": "csv"},
            "files": f"{relation[1]}.csv",
            "source_id_col": "src",
            "dest_id_col": "dst",
        }
        for relation in (["user", "buys", "item"], ["item", "rev_buys", "user"], ["user", "knows", "user"])
    ]
    nodes = []
    for kind, count in (("user", USERS), ("item", ITEMS)):
        (folder / f"{kind}s.csv").write_text("id\n" + "".join(f"{kind[0]}{one}\n" for one in range(count)))
        nodes.append({"node_type": kind, "format": {"name": "csv"}, "files": f"{kind}s.csv", "node_id_col": "id"})
    (folder / "conf.json").write_text(json.dumps({"version": "gconstruct-v0.1", "nodes": nodes, "edges": edges}))
    return GraphStorm(path=str(folder), **options).load()


def graphbolt(folder: Path, **options: Any) -> Graph:
    return GraphBolt(path=str(graphbolt_folder(folder)), **options).load()


def graphbolt_folder(folder: Path, tasks: tuple[Any, ...] = ()) -> Path:
    edges = []
    for kind, rows in (("user:buys:item", BUYS), ("item:rev_buys:user", REVERSED), ("user:knows:user", KNOWS)):
        path = folder / f"{kind.replace(':', '_')}.npy"
        np.save(path, rows)
        edges.append({"type": kind, "format": "numpy", "path": path.name})
    nodes = [{"type": "user", "num": USERS}, {"type": "item", "num": ITEMS}]
    (folder / "metadata.yaml").write_text(
        yaml.safe_dump({"graph": {"nodes": nodes, "edges": edges}, "tasks": [*tasks]})
    )
    return folder


READERS: list[Callable[..., Graph]] = [
    tables_column,
    tables_by_time,
    tables_each,
    edge_list,
    edge_list_inverse,
    edge_list_of_pairs,
    rmat,
    matrix,
    networkx_file,
    pyg_file,
    dgl_graph,
    dgl_partitions,
    graphstorm,
    graphbolt,
]
# Without types, an edge is one link in either direction, and `symmetrize=false` is refused.
UNTYPED = (edge_list_of_pairs, matrix, networkx_file)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_here(monkeypatch)


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_leaves_a_held_out_pair_in_the_graph(
    reader: Callable[..., Graph], symmetrize: bool, tmp_path: Path
) -> None:
    if reader in UNTYPED and not symmetrize:
        pytest.skip("refused: tests/datasets/splits/test_held_out.py")
    graph = reader(tmp_path, symmetrize=symmetrize, link_split=SHARES)
    assert min(len(graph.links[name]) for name in ("valid", "test")) >= 2
    assert leaks(graph) == {"valid": 0, "test": 0}
    if reader not in (*UNTYPED, rmat):
        [note] = [one for one in graph.notes if "each other's reverses" in one]
        names = [("buys", "rev_buys", "knows"), ("relation 0", "relation 1", "relation 2")][
            reader in (edge_list, edge_list_inverse)
        ]
        assert any(f"{one} and {other} (104 of 104 edges)" in note for one, other in (names[:2], names[1::-1])), note
        # If reverses have the same type, `knows` is one link in any case.
        assert (f"{names[2]} and itself" in note) == (reader != edge_list or not symmetrize)


@pytest.mark.parametrize("symmetrize", [True, False])
def test_the_sets_of_graphbolt(symmetrize: bool, tmp_path: Path) -> None:
    """The held-out links are edges of the graph, as in DGL's tutorials, and so are their reverses."""
    sets = {}
    for name, rows in (("train_set", BUYS[:, :70]), ("validation_set", BUYS[:, 70:80]), ("test_set", BUYS[:, 80:])):
        np.save(tmp_path / f"{name}.npy", rows.T.copy())
        seeds = {"name": "seeds", "format": "numpy", "path": f"{name}.npy"}
        sets[name] = [{"type": "user:buys:item", "data": [seeds]}]
    np.save(tmp_path / "back.npy", REVERSED.T.copy())
    sets["train_set"].append({"type": "item:rev_buys:user", "data": [{**seeds, "path": "back.npy"}]})
    graphbolt_folder(tmp_path, ({"name": "links", **sets},))
    graph = GraphBolt(path=str(tmp_path), symmetrize=symmetrize).load()
    assert leaks(graph) == {"valid": 0, "test": 0} and len(graph.links["test"]) == 25
    back = {(int(u), int(i)) for i, u in REVERSED.T}
    gone = 35 + sum((u, i) in back for u, i in BUYS[:, 70:].T.tolist())
    assert graph.num_edges == (1 + symmetrize) * (209 + KNOWS.shape[1] - gone)
    held = {(u, i + USERS) for u, i in BUYS[:, 70:].T.tolist()}
    assert not held & {(v, u) for u, _, v in graph.links["train"].tolist()}
    assert len(graph.links["train"]) == 70 + 104 - (gone - 35)
    [note] = [one for one in graph.notes if "10 of the 10 valid and 25 of the 25 test" in one]
    assert f"removed {(1 + symmetrize) * gone} edges and {gone - 35} training links" in note
    kept = GraphBolt(path=str(tmp_path), symmetrize=symmetrize, held_out_edges="keep").load()
    assert leaks(kept) == {"valid": 10, "test": 25} and len(kept.links["train"]) == 174
    assert any("10 of the 10 valid and 25 of the 25 test" in one and "held_out_edges=keep" in one for one in kept.notes)


def test_triples(tmp_path: Path) -> None:
    """Published benchmarks stay as they are, with a count."""
    held = {"valid": ROWS[70:80], "test": ROWS[80:105]}
    train = [row for row in ROWS if row not in (*held["valid"], *held["test"])]
    for name, rows in {"train": train, **held}.items():
        (tmp_path / f"{name}.txt").write_text("".join("\t".join(row) + "\n" for row in rows))
    there = {(v, u) for u, kind, v in train if kind == "rev_buys"}
    counts = {name: sum((u, v) in there for u, _, v in rows) for name, rows in held.items()}
    assert counts["test"] >= 24
    kept = Triples(path=str(tmp_path)).load()
    assert leaks(kept) == counts and kept.num_edges == 2 * len(train)
    [note] = [one for one in kept.notes if "are edges of the training graph, or reverses" in one]
    assert f"{counts['valid']} of the 10 valid and {counts['test']} of the 25 test" in note
    assert "dataset.held_out_edges=remove" in note and "knows and itself" in note
    for options in ({}, {"symmetrize": False}, {"inverse_relations": False}):
        graph = Triples(path=str(tmp_path), held_out_edges="remove", **options).load()
        assert leaks(graph) == {"valid": 0, "test": 0}
        assert len(graph.links["train"]) == len(train) - sum(counts.values())
        assert any(f"and {sum(counts.values())} training links" in note for note in graph.notes)


def test_ogb(tmp_path: Path) -> None:
    """The graph is the benchmark's, with a count."""
    import gzip

    folder = tmp_path / "ogbl_tiny"
    (folder / "split" / "time").mkdir(parents=True)
    (folder / "raw").mkdir()
    for name, content in (("edge", "0,1\n1,2\n3,4\n2,5\n4,5\n"), ("num-node-list", "6\n")):
        (folder / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(content.encode()))
    for name, pairs in (("valid", [[0, 5], [1, 0]]), ("test", [[2, 1], [4, 3], [0, 4]])):
        torch.save({"edge": np.array(pairs), "edge_neg": np.array([[0, 3]])}, folder / "split" / "time" / f"{name}.pt")
    graph = Ogb(path=str(folder)).load()
    assert graph.num_edges == 10 and leaks(graph) == {"valid": 1, "test": 2}
    assert "1 of the 2 valid and 2 of the 3 test links are edges" in graph.notes[-1]
    assert "They stay" in graph.notes[-1]
