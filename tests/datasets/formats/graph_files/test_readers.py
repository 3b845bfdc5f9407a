"""Graph files from the file to the graph, where NetworkX read something else, and what is refused by its name."""

import gzip
import tempfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hand_files import FILES, HEAD, NODES, ONE, gexf, gml
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.formats.graph_files.typed import typed_value
from gnnexp.datasets.formats.networkx_files import NetworkX, read_graph_file
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph

ENDINGS = {"GraphML": ".graphml", "GML": ".gml", "Pajek": ".net", "GEXF": ".gexf"}


def made(folder: Path, ending: str, text: str, **options: Any) -> tuple[Graph, list[Any]]:
    """The graph, without reverses of arcs, and the ids of its vertices."""
    path = folder / f"x{ending}"
    path.write_text(text, "utf-8")
    graph = NetworkX(path=str(path), **{"symmetrize": False, "duplicates": "keep", **options}).generate(folder / "out")
    return graph, [str(one) for one in pq.read_table(folder / "out" / "ids_vertex.parquet").column("id").to_pylist()]


@pytest.mark.parametrize("name", FILES)
def test_arcs_and_weights_reach_the_graph(name: str, tmp_path: Path) -> None:
    form, text, ids, arcs = FILES[name]
    graph, found = made(tmp_path, ENDINGS[form], text)
    weights = torch.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights
    rows = zip(graph.indices.tolist(), graph.destinations().tolist(), weights.tolist(), strict=True)
    assert found == ids and sorted(map(list, rows)) == sorted(arcs)


def test_defaults_are_classes_and_are_counted(tmp_path: Path) -> None:
    graph, _ = made(tmp_path, ".graphml", FILES["defaults of nodes and edges"][1])
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 1]
    assert any("class: 2 nodes have the file's default 'red'" in note for note in graph.notes)
    assert any("weight: 1 edges have the file's default '2.0'" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".gexf", gexf(NODES + ONE)),
        (".gml", FILES["labels that repeat"][1]),
        (".net", FILES["two vertices with one label"][1]),
        (
            ".graphml",
            f'{HEAD}<key id="label" for="node" attr.name="Label" attr.type="string"/><graph>'
            '<node id="a"><data key="label">Ann</data></node><node id="b"><data key="label">Ann</data></node>'
            '<node id="c"><data key="label">Bob</data></node><edge source="a" target="b"/></graph></graphml>',
        ),
    ],
)
def test_a_name_to_show_is_no_class_unless_asked(ending: str, text: str, tmp_path: Path) -> None:
    graph, _ = made(tmp_path, ending, text)
    assert graph.labels is None and any("for display" in note for note in graph.notes)
    asked, _ = made(tmp_path / "..", ending, text, label="Label" if ending == ".graphml" else "label")
    assert asked.num_classes == (3 if ending == ".net" else 2)


def test_positions_are_no_features_and_no_classes(tmp_path: Path) -> None:
    text = '*Vertices 3\n1 "a" 0.5 0.5\n2 "b" 0.5 1\n3 "c" 1 1\n*Arcs\n1 2\n'
    graph, _ = made(tmp_path, ".net", text)
    assert graph.labels is None and graph.features is None
    assert any("not used: x (2 values, for display), y (2 values, for display)" in note for note in graph.notes)
    asked, _ = made(tmp_path / "..", ".net", text, features=["x", "y"])
    assert isinstance(asked.features, torch.Tensor)
    assert asked.features.tolist() == [[0.5, 0.5], [0.5, 1.0], [1.0, 1.0]]


def test_a_declared_label_is_a_class(tmp_path: Path) -> None:
    declared = (
        '<attributes class="node"><attribute id="0" title="label" type="integer"/></attributes><nodes>'
        '<node id="a" label="A"><attvalues><attvalue for="0" value="1"/></attvalues></node>'
        '<node id="b" label="B"><attvalues><attvalue for="0" value="0"/></attvalues></node>'
        '<node id="c" label="C"><attvalues><attvalue for="0" value="1"/></attvalues></node></nodes>'
    )
    graph, _ = made(tmp_path, ".gexf", gexf(declared + ONE))
    assert graph.labels is not None and graph.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("ending", [".gml", ".graphml", ".gexf"])
def test_large_integers_are_numbers(ending: str, tmp_path: Path) -> None:
    graph = nx.path_graph(40)
    views = [2**31 + one if one < 10 else one for one in range(40)]
    nx.set_node_attributes(graph, dict(enumerate(views)), "views")
    path = tmp_path / f"x{ending}"
    {".gml": nx.write_gml, ".graphml": nx.write_graphml, ".gexf": nx.write_gexf}[ending](graph, str(path))
    found, _ = made(tmp_path, ending, path.read_text("utf-8"), features="auto")
    assert isinstance(found.features, torch.Tensor)
    assert found.features[:, 0].tolist() == np.array(views, np.float32).tolist()
    if ending == ".gml":
        assert any("views: 10 nodes have an integer beyond 32 bits" in note for note in found.notes)


def test_names_in_digits_stay_texts_unless_asked(tmp_path: Path) -> None:
    text = gml(
        "node [",
        "id 1",
        'phone "4915123456789"',
        "]",
        "node [",
        "id 2",
        'phone "4915123456780"',
        "]",
        "edge [",
        "source 1",
        "target 2",
        "]",
    )
    graph, _ = made(tmp_path, ".gml", text)
    assert graph.features is None and any("not used: phone (2 values)" in note for note in graph.notes)
    asked, _ = made(tmp_path / "..", ".gml", text, features=["phone"])
    assert isinstance(asked.features, torch.Tensor) and asked.features.shape == (2, 1)


def test_gml_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "x.gml").write_text(
        'Creator "a [ b"\n# graph [\ngraph\n[\n  node [\n id 10000000000 name "two\nlines &amp; &quot;&#233;&bogus;" '
        "graphics [ x 1.0 w 3 ] r -1.5e+3 big 1e+20 none NAN h 1 h 2 ]\n node [\n id 3 "
        'one "_networkx_list_start" one 7 '
        "label bare ]\n edge [\n source 10000000000\n target 3 ]\n ]",
        "utf-8",
    )
    graph = read_graph_file(tmp_path / "x.gml")
    first, second = graph.vertices
    assert list(graph.names) == [10000000000, 3] and graph.ends.tolist() == [[0, 1]]
    assert first["name"] == 'two\nlines & "é&bogus;' and first["graphics"] == {"x": 1.0, "w": 3}
    assert (first["r"], first["big"], first["h"]) == (-1500.0, 1e20, [1, 2]) and np.isnan(first["none"])
    assert second == {"one": [7], "label": "bare"}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "5", 5),
        ("long", " 9007199254740993 ", 9007199254740993),
        ("double", "1e3", 1000.0),
        ("double", "", None),
        ("boolean", "True", True),
        ("boolean", "0", False),
        ("string", " a ", " a "),
        ("anyURI", "", ""),
        ("vector_double", "1.0, 2.5", [1.0, 2.5]),
        ("listinteger", "[1, 2]", [1, 2]),
        ("listfloat", "1|2.5", [1.0, 2.5]),
        ("liststring", "[a, b]", "[a, b]"),
        ("python_object", "gASV", "gASV"),
        ("float", "-INF", -np.inf),
    ],
)
def test_values_of_declared_types(kind: str, text: str, value: object) -> None:
    assert typed_value(kind, text) == value and type(typed_value(kind, text)) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int", "1.5"), ("int", "1_000"), ("double", "1,5"), ("int", "٣"), ("boolean", "yes"), ("vector_int", "1, x")],
)
def test_what_is_no_value_of_its_type(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"number|true or false|invalid literal"):
        typed_value(kind, text)


def graphml(inside: str, keys: str = "") -> str:
    return f'{HEAD}{keys}<graph edgedefault="directed"><node id="a"/><node id="b"/>{inside}</graph></graphml>'


DEEP = HEAD + "<graph>" * 300 + "</graph>" * 300 + "</graphml>"
AGE = '<key id="k" for="node" attr.name="age" attr.type="int"/>'


@pytest.mark.parametrize(
    ("ending", "text", "said"),
    [
        (".graphml", graphml('<hyperedge><endpoint node="a"/></hyperedge>'), "<hyperedge>.*more than two nodes"),
        (".graphml", graphml('<node id="a"/>'), "node='a': is the id of two nodes"),
        (".graphml", graphml('<edge source="a" target="z"/>'), "edge 1='z': is no node of the file; 1 such ends"),
        (".graphml", graphml('<edge source="a"/>'), "edge 1.*has no source or no target"),
        (".graphml", graphml('<node id="c"><data key="q">1</data></node>'), "<data>='q': there is no <key>"),
        (".graphml", graphml('<node id="c"><data key="k">x</data></node>', AGE), "attribute age='x': is no value.*int"),
        (
            ".graphml",
            graphml('<node id="c"><data key="k">1</data><data key="k">1</data></node>', AGE),
            "age.*given twice",
        ),
        (".graphml", graphml("", AGE + AGE.replace('"k"', '"l"')), "<key> l='age': two keys"),
        (".graphml", graphml("").replace("</graphml>", "<graph/></graphml>"), "<graph>.*several graphs"),
        (".graphml", DEEP, "nested in more than 256"),
        (".graphml", "<gexf/>", "must be a <graphml>"),
        (".gexf", gexf(NODES + '<edges><edge source="a" target="b" type="both"/></edges>'), "edge type='both'"),
        (".gexf", gexf(NODES + '<edges><edge source="a" target="q"/></edges>'), "edge 1='q': is no node"),
        (".gml", gml("node [", "id 1", "]") * 2, "graph='2 graphs'"),
        (".gml", gml("node [", "id 1", "]", "edge [", "source 1", "target 2", "]"), "edge 1='2': is no node"),
        (".gml", "graph [\nnode [\nid 1\n]", "the end of the file.*is not expected"),
        (".gml", gml("node [", "id 1", "]", "]"), "line 6.*is not expected"),
        (".gml", "graph [ a b ]", "is not expected"),
        (".gml", "graph " + "[ a " * 100, "is not expected"),
        (".net", "*Vertices 2\n*Partition p\n1\n", r"line 2='\*Partition p': is no section"),
        (".net", "*Vertices 2\n*Arcs\n1 3\n", "line 3='1 3': '3' is no vertex: vertices have the numbers 1 to 2"),
        (".net", '*Vertices 2\n1 "a"\n1 "b"\n*Arcs\n1 2\n', "line 3.*number of an earlier vertex"),
        (".net", '*Vertices 2\n1 "a "q" b"\n', "line 2.*quotation mark"),
        (".net", "1 2\n", "comes before"),
        (".net", "*Vertices 2\n*Arcs\n1 2\n*Vertices 2\n", "several networks"),
        (".net", "*Arcs\n", "before"),
        (".net", "*Vertices 2\n*Matrix\n0 1\n1\n", "'3 numbers': must have 2 x 2"),
        (".net", "*Vertices 2\n*Arcs\n1\n", "line 3='1': has no two ends"),
        (".gml", f"graph [ a {'1' * 300_000}x ]", "is not expected"),
        (".gml", f"graph [ {'# ' * 300_000}", "the end"),
        (".gml", 'graph [ "' * 50_000, "line 1.*is not expected"),
        (
            ".graphml",
            graphml(f'<node id="c"><data key="k">{"1" * 300_000}x</data></node>', AGE),
            "attribute age.*no value",
        ),
        (".net", f"*Vertices 2\n*Arcs\n1 2 {'1' * 300_000}x\n", "line 3"),
        (".net", f"*Vertices 2\n{'[1-' * 99_999}", "line 2"),
        (".edgelist", f"a b {'# ' * 300_000}{{\na {'#' * 300_000}", "row 2: 'a ' has no two ends"),
        (".json", '{"nodes": [{"id": {"a": 1}}], "links": []}', "is no id"),
        (".json", '{"nodes": [{"id": 1}], "links": [{"source": 1}]}', "edge 1.*has no source or no target"),
    ],
    ids=lambda text: text[:40],
)
def test_a_construct_is_refused_by_its_name(ending: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"(?s){said}"):
        made(tmp_path, ending, text)


@pytest.mark.parametrize("inside", ["<!--{}-->", "<?a {}?>", '<node id="c" a="{}"/>', "<node id='c' {}/>"])
def test_a_tag_that_does_not_end_is_refused(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.datasets.formats.graph_files.xml_events._CHUNK", 16)
    monkeypatch.setattr("gnnexp.datasets.formats.graph_files.xml_events._LONGEST", 128)
    edge = '<edge source="a" target="b"/>'
    assert made(tmp_path, ".graphml", graphml(inside.format(" " * 60) + edge))[0].num_edges == 1
    assert (
        made(tmp_path, ".graphml", graphml(f"<desc>{'x' * 999}</desc><desc><![CDATA[{'x' * 999}]]></desc>{edge}"))[
            0
        ].num_edges
        == 1
    )  # texts come in pieces
    with pytest.raises(DataError, match=r"a tag, a comment or blanks around byte .* must have at most 128 bytes"):
        made(tmp_path, ".graphml", graphml(inside.format(" " * 999) + edge))


def test_defaults_and_rare_attributes_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "".join(
        f'<key id="k{n}" for="node" attr.name="a{n}" attr.type="int"><default>1</default></key>' for n in range(50)
    )
    many = graphml("".join(f'<node id="{n}"/>' for n in range(98)) + '<edge source="a" target="b"/>', keys)
    own = gml(
        *(line for n in range(100) for line in ("node [", f"id {n}", f"a{n} 1", "]")),
        "edge [",
        "source 1",
        "target 2",
        "]",
    )
    assert made(tmp_path, ".graphml", many)[0].num_features == 50
    monkeypatch.setattr("gnnexp.datasets.base.available_memory", lambda: 390_000)
    with pytest.raises(DataError, match="50 defaults for 100 nodes"):
        made(tmp_path, ".graphml", many)
    with pytest.raises(DataError, match="100 attributes of 100 vertices"):
        made(tmp_path, ".gml", own)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ("node", "node", True),
        ("node", "edge", False),
        ("node", "all", True),
        ("all", "edge", True),
        ("graph", "node", False),
        ("graph", "all", False),
        ("graph", "graph", False),
    ],
)
def test_names_of_keys_are_unique_for_each_owner(first: str, second: str, refused: bool, tmp_path: Path) -> None:
    keys = "".join(
        f'<key id="{key}" for="{owner}" attr.name="a" attr.type="int"/>'
        for key, owner in (("k0", first), ("k1", second))
    )
    text = graphml('<edge source="a" target="b"/>', keys)
    if not refused:
        assert made(tmp_path, ".graphml", text)[0].num_edges == 1
        return
    with pytest.raises(DataError, match="<key> k1='a': two keys"):
        made(tmp_path, ".graphml", text)


def test_titles_of_gexf_are_unique_for_each_owner(tmp_path: Path) -> None:
    def attributes(owner: str, *rows: tuple[str, str]) -> str:
        inside = "".join(f'<attribute id="{key}" title="{name}" type="integer"/>' for key, name in rows)
        return f'<attributes class="{owner}">{inside}</attributes>'

    edges = '<edges><edge source="a" target="b"/></edges>'
    fine = attributes("node", ("0", "x"), ("0", "y"), ("1", "x")) + attributes("edge", ("0", "x"), ("weight", "weight"))
    assert made(tmp_path, ".gexf", gexf(fine + NODES + edges))[0].num_edges == 2
    with pytest.raises(DataError, match="<attribute> 1='x': two attributes of nodes"):
        made(tmp_path, ".gexf", gexf(attributes("node", ("0", "x"), ("1", "x")) + NODES + edges))


def test_a_network_that_begins_with_comments_is_recognised(tmp_path: Path) -> None:
    for start in ("% made by hand\n\n% twice\n", "\ufeff", "\n \n"):
        (tmp_path / "x.net").write_text(f"{start}*Vertices 2\n*Arcs\n1 2\n", "utf-8")
        assert NetworkX.recognised(tmp_path / "x.net") == []
        assert read_graph_file(tmp_path / "x.net").ends.tolist() == [[0, 1]]
    (tmp_path / "x.net").write_text(" " * 4000 + "a b\n*c d\n")
    assert NetworkX.recognised(tmp_path / "x.net") is None


def test_times_of_gexf_are_named_and_not_used(tmp_path: Path) -> None:
    dynamic = (
        '<attributes class="node" mode="dynamic"><attribute id="0" title="age" type="integer"/></attributes>'
        '<nodes><node id="a" start="1"><attvalues><attvalue for="0" value="1" end="2"/>'
        '<attvalue for="0" value="2" start="2"/></attvalues><spells><spell start="1"/></spells></node>'
        '<node id="b"/><node id="c"/></nodes>'
    )
    graph, _ = made(tmp_path, ".gexf", gexf(dynamic + ONE))
    assert graph.features is None
    assert "age of nodes is not used: 1 values are for other times" in graph.notes
    assert "not used: node start (1), spells (1), spell (1)" in graph.notes


def test_yed_names_and_drawings(tmp_path: Path) -> None:
    drawn = (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">'
        '<key for="node" id="d6" yfiles.type="nodegraphics"/><graph edgedefault="directed"><node id="n0">'
        '<data key="d6"><y:ShapeNode><y:Geometry x="1.0"/><y:NodeLabel>A <y:X/></y:NodeLabel></y:ShapeNode></data>'
        '</node><node id="n1"/><edge source="n0" target="n1"/></graph></graphml>'
    )
    (tmp_path / "x.graphml").write_text(drawn)
    graph = read_graph_file(tmp_path / "x.graphml")
    assert graph.vertices == [{"label": "A"}, {}] and graph.display == {"label"}
    assert list(graph.notes) == ["1 drawings of yEd are not used"]


def test_comments_of_lists_begin_after_a_space(tmp_path: Path) -> None:
    (tmp_path / "x.edgelist").write_text("# a list\na#1 b {'colour': '#f00'}\nb c {'weight': 2}  # the last\n")
    graph = read_graph_file(tmp_path / "x.edgelist")
    assert list(graph.names) == ["a#1", "b", "c"] and list(graph.edges) == [{"colour": "#f00"}, {"weight": 2}]


# --- any list of distinct printable ids comes back equal --------------------------------------------------------------
STRANGE = (
    "1.10",
    "1e5",
    "1E5",
    "0x1F",
    "0x1f",
    "31",
    "007",
    "7",
    "+7",
    "yes",
    "no",
    "true",
    "NaN",
    "null",
    "None",
    "",
    "2024-01-01",
    " a",
    "a ",
    "1_000",
    "1,5",
    "&amp;",
    "&lt;",
    "&#34;",
    "&quot;",
    "[]",
    "()",
    "'",
    '"',
    "\\",
    "#",
    "*Arcs",
    "%",
    "é",
    "𝔘",
    "١",
    "ﬁ",
    str(2**63),
    str(-(2**70)),
    "inf",
    "label",
    "a b",
    'a "b" c',
    "]",
    "[1-2]",
)
IDS = st.lists(
    st.one_of(st.sampled_from(STRANGE), st.text(st.characters(exclude_categories=("C", "Zl", "Zp")))),
    min_size=2,
    max_size=12,
    unique=True,
)


def pajek_text(ids: list[str]) -> str:
    """As igraph 1.0 writes labels, but with `&` as an entity, too."""
    shown = [one.replace("&", "&#38;").replace('"', "&#34;") for one in ids]
    return (
        f"*Vertices {len(ids)}\n"
        + "".join(f'{place} "{one}"\n' for place, one in enumerate(shown, 1))
        + ("*Arcs\n1 2\n")
    )


@given(ids=IDS)
def test_any_ids_come_back_equal(ids: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_ids(ids, Path(folder))


def check_ids(ids: list[str], folder: Path) -> None:
    graph = nx.DiGraph([(ids[0], ids[1])])
    graph.add_nodes_from(ids)
    order = list(graph)
    nx.write_graphml(graph, str(folder / "x.graphml"))
    nx.write_gexf(graph, str(folder / "x.gexf"))
    nx.write_gml(graph, str(folder / "x.gml"))
    (folder / "x.net").write_text(pajek_text(order), "utf-8")
    (folder / "x.gml.gz").write_bytes(gzip.compress((folder / "x.gml").read_bytes()))
    for name in ("x.graphml", "x.gexf", "x.gml", "x.net", "x.gml.gz"):
        found = NetworkX(path=str(folder / name)).read()
        known = found.vertices["vertex"].ids
        assert known is not None and known.tolist() == order, name
        assert (found.edges[0].source.tolist(), found.edges[0].destination.tolist()) == ([0], [1])
