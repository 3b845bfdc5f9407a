import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

CLASSES = classes_of("dataset", own_folders())


def text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def loaded(place: Path) -> tuple[Graph, list[str]]:
    """The graph that the guessed overrides load, and these overrides."""
    lines = [*recognised(place, CLASSES).overrides]
    return build(compose(lines).config["dataset"], Dataset).load(), lines


# --- MUSAE ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "header", "rows", "edges", "label"),
    [
        ("musae_git", "id,name,ml_target", ["0,Eiryyy,0", "1,shawflying,1", "2,Jason,0"], "id_1,id_2", "ml_target"),
        (
            "musae_facebook",
            "id,facebook_id,page_name,page_type",
            [
                '0,145647315578475,"The Voice, of China",tvshow',
                "1,191483281412,U.S. Consulate,government",
                "2,14,A,tvshow",
            ],
            "id_1,id_2",
            "page_type",
        ),
        ("lastfm_asia", "id,target", ["0,8", "1,17", "2,8"], "node_1,node_2", "target"),
        (
            "musae_DE",
            "id,days,mature,views,partner,new_id",
            ["73045350,1459,False,9528,False,2", "61573865,1629,True,3615,False,0", "171688476,411,True,46546,False,1"],
            "from,to",
            "mature",
        ),
    ],
)
def test_a_folder_of_musae_is_tables(
    name: str,
    header: str,
    rows: list[str],
    edges: str,
    label: str,
    tmp_path: Path,
) -> None:
    text(tmp_path / f"{name}_edges.csv", edges, "0,1", "1,2")
    text(tmp_path / f"{name}_target.csv", header, *rows)
    words = f"{name}.json" if name == "musae_DE" else f"{name}_features.json"
    (tmp_path / words).write_text(json.dumps({"0": [1, 4], "1": [0], "2": []}))
    text(tmp_path / "README.txt", "Nodes represent things, and edges", "are links.")
    text(tmp_path / "citing.txt", "@misc{rozemberczki2019multiscale,", "title = {Multi-scale}}")
    graph, lines = loaded(tmp_path)
    assert f"dataset.label={label}" in lines
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (3, 4, 5, 2)
    if name == "musae_DE":  # edges and words name the column new_id
        assert graph.labels is not None and graph.labels.tolist() == [0, 1, 1]


def test_numbers_of_visits_are_no_classes(tmp_path: Path) -> None:
    text(tmp_path / "musae_chameleon_edges.csv", "id1,id2", *(f"{one},{one + 1}" for one in range(299)))
    text(tmp_path / "musae_chameleon_target.csv", "id,target", *(f"{one},{one * 7}" for one in range(300)))
    (tmp_path / "musae_chameleon_features.json").write_text(json.dumps({str(one): [one % 9] for one in range(300)}))
    graph, lines = loaded(tmp_path)
    assert graph.labels is None and "dataset.label=null" in lines and graph.num_nodes == 300


# --- SNAP and LAW -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("file", ["web.txt", "web.txt.gz", "web.edges", "web.arcs", "web.el"])
def test_lists_without_a_header(file: str, tmp_path: Path) -> None:
    lines = [
        "# Directed graph (each unordered pair of nodes is saved once): web.txt",
        "# Nodes: 3 Edges: 3",
        "# FromNodeId\tToNodeId",
        "0\t11342",
        "0\t824020",
        "824020\t11342",
    ]
    text(tmp_path / "plain", *(lines if ".txt" in file else lines[3:]))
    content = (tmp_path / "plain").read_bytes()
    (tmp_path / "plain").unlink()
    (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    for place in (tmp_path / file, tmp_path):
        graph, _ = loaded(place)
        assert (graph.num_nodes, graph.num_edges) == (3, 6)


def test_a_list_with_a_header(tmp_path: Path) -> None:
    text(tmp_path / "x.edges", "source target", "ann bob", "bob zoë")
    assert loaded(tmp_path / "x.edges")[0].num_nodes == 3


def test_communities_are_left_out(tmp_path: Path) -> None:
    text(tmp_path / "com-dblp.ungraph.txt", "# Undirected graph", "# FromNodeId\tToNodeId", "0\t1", "1\t7")
    text(tmp_path / "com-dblp.all.cmty.txt", "0\t1\t7", "1")
    (tmp_path / "com-dblp.top5000.cmty.txt.gz").write_bytes(gzip.compress(b"0\t1\n"))
    graph, _ = loaded(tmp_path)
    assert graph.num_nodes == 3 and graph.labels is None


@pytest.mark.parametrize("width", [2, 9, 10, 11, 120])
def test_an_ego_network(width: int, tmp_path: Path) -> None:
    text(tmp_path / "107.edges", "5 9", "9 5", "9 100")
    rows = {one: " ".join(str((one + column) % 2) for column in range(width)) for one in (5, 9, 100, 7)}
    text(tmp_path / "107.feat", *(f"{one} {words}" for one, words in rows.items()))
    text(tmp_path / "107.circles", "circle0\t5\t9")
    text(tmp_path / "107.egofeat", "0 " * width)
    graph, _ = loaded(tmp_path / "107.edges")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 4, width)


# --- Hugging Face -----------------------------------------------------------------------------------------------------
def parquet(path: Path, **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


EDGES = {"source": ["a", "b"], "target": ["b", "c"]}
README = """---
license: mit
configs:
- config_name: nodes
  data_files:
  - split: train
    path: nodes/train-*
  - split: test
    path:
    - nodes/test-00000-of-00001.parquet
- config_name: edges
  data_files: edges/*.parquet
---
# A graph
"""


@pytest.mark.parametrize("readme", [True, False])
def test_configurations_are_tables_and_shards_are_a_split(readme: bool, tmp_path: Path) -> None:
    parquet(tmp_path / "nodes" / "train-00000-of-00002.parquet", id=["c"], x=[[1.0, 2.0]], label=["p"])
    parquet(tmp_path / "nodes" / "train-00001-of-00002.parquet", id=["d"], x=[[0.0, 0.0]], label=["q"])
    parquet(
        tmp_path / "nodes" / "test-00000-of-00001.parquet", id=["a", "b"], x=[[3.0, 4.0], [5.0, 6.0]], label=["q", "p"]
    )
    parquet(tmp_path / "edges" / "train-00000-of-00001.parquet", **EDGES)
    (tmp_path / "README.md").write_text(README if readme else "# A graph\n")
    graph, lines = loaded(tmp_path)
    assert "dataset.split=files" in lines
    assert graph.features is not None and graph.features.tolist() == [[3, 4], [5, 6], [1, 2], [0, 0]]  # type: ignore[union-attr]
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[2, 3], [], [0, 1]]


def test_tables_may_be_named_shards_in_data(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "nodes-00000-of-00001.parquet", id=["a", "b", "c"], label=[0, 1, 0])
    parquet(tmp_path / "data" / "edges-00000-of-00002.parquet", **EDGES)
    parquet(tmp_path / "data" / "edges-00001-of-00002.parquet", source=["c"], target=["a"])
    graph, lines = loaded(tmp_path)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (3, 6, 2)
    assert "dataset.edges='data/edges-*.parquet'" in lines and "dataset.split=files" not in lines


def test_one_configuration_is_a_table_of_edges(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "train-00000-of-00001.parquet", **EDGES)
    assert loaded(tmp_path)[0].num_nodes == 3


def test_a_graph_in_each_row_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "train-00000-of-00001.parquet", edge_index=[[[0, 1], [1, 0]]], num_nodes=[2], y=[[1]])
    with pytest.raises(DataError, match="each row is a graph"):
        recognised(tmp_path, CLASSES)


@pytest.mark.parametrize(
    "content",
    [
        "---\n: [\n---\n",
        "---\nconfigs: 3\n---\n",
        "---\nconfigs:\n- data_files: ../*\n---\n",
        "---\n" + "[" * 5000,
        "---\nconfigs:\n- data_files: /etc/*\n---\n",
        "---\nmade: 2024-13-45\n---\n",
        "---\nx: !!bool maybe\n---\n",
    ],
)
def test_a_hostile_readme_changes_nothing(content: str, tmp_path: Path) -> None:
    parquet(tmp_path / "edges" / "train-00000-of-00001.parquet", **EDGES)
    (tmp_path / "README.md").write_text(content)
    assert loaded(tmp_path)[0].num_nodes == 3
