"""Weights of opposite and parallel edges, in every reader: each direction has its own, parallel ones follow the rule.

What a graph must have is computed with dictionaries and NumPy, from the rows. The order of rows never matters.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
import yaml
from dgl_here import read_here
from gnn_gconstruct.graphstorm import GraphStorm
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.formats.dgl.dgl_graph import DglGraph
from gnnexp.datasets.formats.dgl.graphbolt import GraphBolt
from gnnexp.datasets.formats.matrix import AdjacencyMatrix
from gnnexp.datasets.formats.networkx_files import NetworkX
from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.datasets.published.ogb import Ogb
from gnnexp.datasets.published.triples import Triples
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph

Rows = Sequence[tuple[int, int, float]]
COUNT = 5
WEIGHTS = [0.1, 0.5, 1.0, 3.0, 1e7, -2.0]
RULES: dict[str, Callable[[Any], Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
ROWS = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), st.sampled_from(WEIGHTS)), min_size=1, max_size=14
)
_numbers = itertools.count()


# --- what must come out -----------------------------------------------------------------------------------------------
def wanted(
    rows: Rows, rule: str, *, symmetrize: bool, merge: bool, undirected: bool, loops: bool
) -> dict[tuple[int, int], list[float]]:
    """The weights of each pair of vertices, ascending. A loop has no reverse."""
    given_rows = defaultdict(list)
    for u, v, weight in rows:
        if u != v or loops:
            given_rows[u, v].append(weight)
            if undirected and u != v:
                given_rows[v, u].append(weight)
    found = {pair: list(values) for pair, values in given_rows.items()}
    if symmetrize and not merge and not undirected:
        for (u, v), values in given_rows.items():
            found[v, u] = found.get((v, u), []) + values if u != v else values
    if symmetrize and merge:
        found |= {(v, u): list(values) for (u, v), values in given_rows.items() if (v, u) not in given_rows}
    if merge:
        found = {pair: [RULES[rule](np.sort(np.array(values)))] for pair, values in found.items()}
    return {pair: sorted(float(np.float32(one)) for one in values) for pair, values in found.items()}


def weights_of(graph: Graph) -> dict[tuple[int, int], list[float]]:
    """The weights of each pair of vertices, in the order of the graph."""
    found = defaultdict(list)
    weights = torch.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights
    for u, v, weight in zip(graph.indices.tolist(), graph.destinations().tolist(), weights.tolist(), strict=True):
        found[u, v].append(weight)
    return dict(found)


# --- how each format has the rows -------------------------------------------------------------------------------------
def tables(ending: str) -> Callable[..., Graph]:
    def load(folder: Path, rows: Rows, **options: Any) -> Graph:
        (folder / "nodes.csv").write_text("id\n" + "".join(f"{one}\n" for one in range(COUNT)))
        if ending == "csv":
            (folder / "edges.csv").write_text("src,dst,weight\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
        elif ending == "jsonl":
            (folder / "edges.jsonl").write_text(
                "".join(json.dumps({"src": u, "dst": v, "weight": w}) + "\n" for u, v, w in rows)
            )
        else:
            columns = zip(*rows, strict=True)
            pq.write_table(
                pa.table(dict(zip(("src", "dst", "weight"), map(list, columns), strict=True))), folder / "edges.parquet"
            )
        return Tables(path=str(folder), edges=f"edges.{ending}", nodes="nodes.csv", **options).load()

    return load


def matrix(form: str) -> Callable[..., Graph]:
    def load(folder: Path, rows: Rows, **options: Any) -> Graph:
        u, v, w = (np.array(one) for one in zip(*rows, strict=True))
        if form == "npz":
            scipy.sparse.save_npz(folder / "m.npz", scipy.sparse.coo_array((w, (u, v)), (COUNT, COUNT)))
        else:
            (folder / "m.mtx").write_text(
                f"%%MatrixMarket matrix coordinate real general\n{COUNT} {COUNT} {len(rows)}\n"
                + "".join(f"{u + 1} {v + 1} {w}\n" for u, v, w in rows)
            )
        return AdjacencyMatrix(path=str(folder / f"m.{form}"), weights=True, **options).load()

    return load


def pyg(folder: Path, rows: Rows, **options: Any) -> Graph:
    u, v, w = zip(*rows, strict=True)
    torch.save(
        {"edge_index": torch.tensor([u, v]), "edge_weight": torch.tensor(w, dtype=torch.float64), "num_nodes": COUNT},
        folder / "g.pt",
    )
    return Pyg(path=str(folder / "g.pt"), **options).load()


def dgl(folder: Path, rows: Rows, **options: Any) -> Graph:
    library = pytest.importorskip("dgl")
    u, v, w = zip(*rows, strict=True)
    graph = library.graph((u, v), num_nodes=COUNT)
    graph.edata["w"] = torch.tensor(w, dtype=torch.float64)
    library.save_graphs(str(folder / "g.bin"), [graph])
    return DglGraph(path=str(folder / "g.bin"), **options).load()


def graphbolt(folder: Path, rows: Rows, **options: Any) -> Graph:
    u, v, w = zip(*rows, strict=True)
    np.save(folder / "edges.npy", np.array([u, v]))
    np.save(folder / "w.npy", np.array(w))
    (folder / "metadata.yaml").write_text(
        yaml.safe_dump(
            {
                "graph": {"nodes": [{"num": COUNT}], "edges": [{"format": "numpy", "path": "edges.npy"}]},
                "feature_data": [{"domain": "edge", "name": "weight", "format": "numpy", "path": "w.npy"}],
                "tasks": [],
            }
        )
    )
    return GraphBolt(path=str(folder), **options).load()


def graphstorm(folder: Path, rows: Rows, **options: Any) -> Graph:
    (folder / "e.csv").write_text("s,d,weight\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
    (folder / "n.csv").write_text("id\n" + "".join(f"{one}\n" for one in range(COUNT)))
    (folder / "conf.json").write_text(
        json.dumps(
            {
                "version": "gconstruct-v0.1",
                "nodes": [{"node_type": "n", "format": {"name": "csv"}, "files": "n.csv", "node_id_col": "id"}],
                "edges": [
                    {
                        "relation": ["n", "to", "n"],
                        "format": {"name": "csv"},
                        "files": "e.csv",
                        "source_id_col": "s",
                        "dest_id_col": "d",
                        "features": [{"feature_col": "weight"}],
                    }
                ],
            }
        )
    )
    return GraphStorm(path=str(folder), **options).load()


def graph_file(ending: str, *, directed: bool = True) -> Callable[..., Graph]:
    nx = pytest.importorskip("networkx")
    writers = {
        "graphml": nx.write_graphml,
        "gexf": nx.write_gexf,
        "gml": nx.write_gml,
        "net": nx.write_pajek,
        "json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph, edges="edges"))),
    }

    def load(folder: Path, rows: Rows, **options: Any) -> Graph:
        graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
        graph.add_nodes_from(range(COUNT))
        graph.add_weighted_edges_from(rows)
        if ending == "net":
            graph = nx.relabel_nodes(graph, {one: f"v{one}" for one in range(COUNT)})
        writers[ending](graph, folder / f"g.{ending}")
        return NetworkX(path=str(folder / f"g.{ending}"), features=[], **options).load()

    load.undirected = not directed  # type: ignore[attr-defined]
    return load


READERS: dict[str, Callable[..., Graph]] = {
    "csv": tables("csv"),
    "jsonl": tables("jsonl"),
    "parquet": tables("parquet"),
    "npz": matrix("npz"),
    "mtx": matrix("mtx"),
    "pyg": pyg,
    "dgl": dgl,
    "graphbolt": graphbolt,
    "graphstorm": graphstorm,
    **{ending: graph_file(ending) for ending in ("graphml", "gexf", "gml", "net", "json")},
    **{f"undirected {ending}": graph_file(ending, directed=False) for ending in ("graphml", "gml", "json")},
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_here(monkeypatch)


def check(name: str, rows: Rows, again: Rows, rule: str, place: Path, options: tuple[bool, bool, bool]) -> None:
    """The graph of the rows, and of the same rows in another order, has the weights that it must have."""
    symmetrize, merge, loops = options
    keys = {
        "symmetrize": symmetrize,
        "duplicates": "merge" if merge else "keep",
        "merge_weights": rule,
        "self_loops": "keep" if loops else "remove",
    }
    right = wanted(
        rows,
        rule,
        symmetrize=symmetrize,
        merge=merge,
        loops=loops,
        undirected=getattr(READERS[name], "undirected", False),
    )
    if not right:
        return  # self loops only: no edge is left
    for one in (rows, again):
        folder = place / str(next(_numbers))
        folder.mkdir(parents=True)
        assert weights_of(READERS[name](folder, one, **keys)) == right


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[Rows, Rows]:
    rows = draw(ROWS)
    return rows, draw(st.permutations(rows))


@pytest.mark.parametrize("name", READERS)
@given(rows=two_orders(), rule=st.sampled_from([*RULES]), options=st.tuples(*[st.booleans()] * 3))
@settings(max_examples=6)
def test_no_order_of_rows_matters(
    name: str,
    rows: tuple[Rows, Rows],
    rule: str,
    options: tuple[bool, bool, bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    check(name, *rows, rule, tmp_path_factory.mktemp("rows"), options)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", READERS)
@given(rows=two_orders(), rule=st.sampled_from([*RULES]), options=st.tuples(*[st.booleans()] * 3))
@settings(max_examples=600)
def test_no_order_of_many_rows_matters(
    name: str,
    rows: tuple[Rows, Rows],
    rule: str,
    options: tuple[bool, bool, bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    check(name, *rows, rule, tmp_path_factory.mktemp("rows"), options)


# --- readers without weights, and rows of vertices --------------------------------------------------------------------
def edge_list(ending: str, *, typed: bool = False, **more: Any) -> Callable[..., Graph]:
    def load(folder: Path, rows: Rows) -> Graph:
        array = np.array([(u, v, abs(int(w)) % 3) for u, v, w in rows])[:, : 3 if typed else 2]
        if ending == "npy":
            np.save(folder / "e.npy", array)
        else:
            (folder / f"e.{ending}").write_text("".join("\t".join(map(str, row)) + "\n" for row in array.tolist()))
        return EdgeList(path=str(folder / f"e.{ending}"), num_nodes=COUNT, **more).load()

    return load


def triples(folder: Path, rows: Rows) -> Graph:
    (folder / "train.txt").write_text("".join(f"e{u}\tr{w}\te{v}\n" for u, v, w in rows))
    for name in ("valid", "test"):
        (folder / f"{name}.txt").write_text("e0\tr0.1\te1\n")
    return Triples(path=str(folder)).load()


def ogb(folder: Path, rows: Rows) -> Graph:
    (folder / "raw").mkdir()
    (folder / "split" / "s").mkdir(parents=True)
    parts = {
        "raw/edge": "".join(f"{u},{v}\n" for u, v, _ in rows),
        "raw/num-node-list": f"{COUNT}\n",
        "raw/node-label": "0\n" * COUNT,
        **{f"split/s/{name}": f"{one}\n" for one, name in enumerate(("train", "valid", "test"))},
    }
    for name, content in parts.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(content.encode()))
    return Ogb(name="ogbn-mine", path=str(folder)).load()


def relations(folder: Path, rows: Rows) -> Graph:
    """Ids and relations are texts, and no table of vertices says their order."""
    (folder / "edges.csv").write_text("src,relation,dst\n" + "".join(f"v{u},{w},v{v}\n" for u, v, w in rows))
    return Tables(path=str(folder), relation="relation").load()


PLAIN: dict[str, Callable[..., Graph]] = {
    "tsv": edge_list("tsv"),
    "typed tsv": edge_list("tsv", typed=True),
    "npy": edge_list("npy"),
    "streamed": edge_list("npy", streamed=True),
    "triples": triples,
    "ogb": ogb,
    "relations": relations,
}


@pytest.mark.parametrize("name", PLAIN)
@given(rows=two_orders())
@settings(max_examples=6)
def test_no_order_of_rows_without_weights_matters(
    name: str, rows: tuple[Rows, Rows], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(any(u != v for u, v, _ in rows[0]))
    first, second = (PLAIN[name](tmp_path_factory.mktemp("rows"), one) for one in rows)
    assert first.indptr.equal(second.indptr) and first.indices.equal(second.indices)
    assert (first.edge_types is None) == (second.edge_types is None)
    if first.edge_types is not None and second.edge_types is not None:
        assert first.edge_types.equal(second.edge_types)


@given(order=st.permutations(range(8)), ids=st.permutations(range(100, 108)))
@settings(max_examples=4)
def test_rows_of_vertices_may_have_any_order(
    order: list[int], ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By its id, each vertex has the same label, features, split and edges."""
    rows = [
        f"{one},{'xyz'[place % 3]},{place / 4},{('train', 'val', 'test')[place % 3]}" for place, one in enumerate(ids)
    ]
    found = []
    for lines in (rows, [rows[place] for place in order]):
        folder = tmp_path_factory.mktemp("rows")
        (folder / "nodes.csv").write_text("id,label,f,split\n" + "\n".join(lines) + "\n")
        (folder / "edges.csv").write_text(
            "src,dst\n" + "".join(f"{ids[place]},{ids[(3 * place + 1) % 8]}\n" for place in order)
        )
        graph = Tables(path=str(folder), nodes="nodes.csv", split="column").generate(folder / "g")
        names = pq.read_table(folder / "g" / "ids_vertex.parquet")["id"].to_pylist()
        assert isinstance(graph.features, torch.Tensor) and graph.labels is not None
        found.append(
            (
                dict(zip(names, zip(graph.labels.tolist(), graph.features.tolist(), strict=True), strict=True)),
                {
                    (names[u], names[v])
                    for u, v in zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)
                },
                [
                    {names[one] for one in part.tolist()}
                    for part in (graph.splits.train, graph.splits.val, graph.splits.test)
                ],
            )
        )
    assert found[0] == found[1]


# --- the rules of formats ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", READERS)
def test_the_default_is_the_rule_of_the_format_or_an_error(name: str, tmp_path: Path) -> None:
    """Equal weights of parallel rows are no reason for an error."""
    (tmp_path / "same").mkdir()
    (tmp_path / "other").mkdir()
    same = READERS[name](tmp_path / "same", [(0, 1, 3.0), (0, 1, 3.0), (1, 2, 2.0)], symmetrize=False)
    rows = [(0, 1, 1.0), (0, 1, 3.0), (3, 4, 0.5)]
    if name in ("npz", "mtx", "pyg"):
        assert weights_of(same) == {(0, 1): [6.0], (1, 2): [2.0]}
        assert weights_of(READERS[name](tmp_path / "other", rows, symmetrize=False)) == {(0, 1): [4.0], (3, 4): [0.5]}
        return
    assert weights_of(same)[0, 1] == [3.0]
    with pytest.raises(DataError) as caught:
        READERS[name](tmp_path / "other", rows)
    said = str(caught.value)
    assert "dataset.merge_weights='error': " in said and "there more than once with different weights" in said
    assert ("v0 -> v1: 1 to 3" if name == "net" else "0 -> 1: 1 to 3") in said
    assert "merge_weights=sum, mean, max or min" in said


def test_a_row_stochastic_matrix_comes_back(tmp_path: Path) -> None:
    """As in the review: P[1, 0] was 1.0 because P[0, 1] is."""
    dense = np.array([[0, 1, 0], [0.25, 0, 0.75], [0, 1, 0]])
    scipy.sparse.save_npz(tmp_path / "p.npz", scipy.sparse.csr_array(dense))
    graph = AdjacencyMatrix(path=str(tmp_path / "p.npz")).load()
    back = np.zeros((3, 3))
    back[graph.indices.numpy(), graph.destinations().numpy()] = graph.edge_weights.numpy()
    assert (back == dense).all()


def test_ids_of_the_user_are_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("src,dst,w\nu7,b,1\nc,d,4\nu7,b,2.5\nu7,b,1\n")
    with pytest.raises(DataError, match=r"1 edge is there more than once with different weights \(u7 -> b: 1 to 2.5\)"):
        Tables(path=str(tmp_path), weight="w").load()
