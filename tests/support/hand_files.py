"""Graph files as programs other than Python libraries write them (Pajek, Gephi, network repositories), and their arcs.

`others_files.py` asks igraph, NetworkX and NetworKit what they read in them.
"""

HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
KEYS = (
    '<key id="w" for="edge" attr.name="weight" attr.type="double"><default>2.0</default></key>'
    '<key id="c" for="node" attr.name="class" attr.type="string"><default>red</default></key>'
)
GEXF = (
    '<gexf xmlns="{space}" version="1.3" xmlns:viz="{space}/viz"><meta><creator>Gephi 0.10.1</creator></meta>'
    '<graph defaultedgetype="{kind}" mode="static">{inside}</graph></gexf>'
)
NODES = '<nodes><node id="a" label="Ann"/><node id="b" label="Bob"/><node id="c" label="Ann"/></nodes>'
CLASSES = (
    '<attributes class="node" mode="static"><attribute id="m" title="group" type="string">'
    "<default>red</default></attribute></attributes>"
    '<attributes class="edge"><attribute id="d" title="weight" type="float"><default>2.5</default></attribute>'
    '</attributes><nodes><node id="a" label="Ann"><attvalues><attvalue for="m" value="blue"/></attvalues>'
    '<viz:color r="1" g="2" b="3"/></node><node id="b" label="Bob"/><node id="c" label="Ann"/></nodes>'
)
ONE = '<edges><edge id="0" source="a" target="b" weight="3.0"/><edge id="1" source="b" target="c"/></edges>'


def gexf(inside: str, kind: str = "undirected", space: str = "http://gexf.net/1.3") -> str:
    return GEXF.format(space=space, kind=kind, inside=inside)


def gml(*lines: str) -> str:
    """A GML file with one graph, a word or a bracket in each line."""
    return "\n".join(["graph [", *lines, "]", ""])


def both(*pairs: tuple[int, int, float]) -> list[list[float]]:
    return [[u, v, w] for u, v, w in pairs] + [[v, u, w] for u, v, w in pairs]


# format, text, names (None: not compared), arcs with weights
FILES: dict[str, tuple[str, str, list[str] | None, list[list[float]]]] = {
    "*Edgeslist": (
        "Pajek",
        '*Vertices 4\n1 "a"\n2 "b"\n3 "c"\n4 "d"\n*Edgeslist\n1 2 3 4\n',
        ["a", "b", "c", "d"],
        both((0, 1, 1), (0, 2, 1), (0, 3, 1)),
    ),
    "*Arcslist": (
        "Pajek",
        '*Vertices 4\n1 "a"\n2 "b"\n3 "c"\n4 "d"\n*Arcslist\n1 2 3 4\n2 1\n',
        ["a", "b", "c", "d"],
        [[0, 1, 1], [0, 2, 1], [0, 3, 1], [1, 0, 1]],
    ),
    "two vertices with one label": (
        "Pajek",
        '*Vertices 4\n1 "x"\n2 "x"\n3 "y"\n4 "z"\n*Arcs\n1 3 2\n2 4 3\n',
        ["1", "2", "3", "4"],
        [[0, 2, 2], [1, 3, 3]],
    ),
    "*Arcs then *Edges": (
        "Pajek",
        '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Arcs\n1 2 2.5\n*Edges\n2 3 4\n',
        ["a", "b", "c"],
        [[0, 1, 2.5], [1, 2, 4], [2, 1, 4]],
    ),
    "*Edges then *Arcs": (
        "Pajek",
        '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Edges\n1 2 2.5\n*Arcs\n2 3 4\n',
        ["a", "b", "c"],
        [[0, 1, 2.5], [1, 0, 2.5], [1, 2, 4]],
    ),
    "vertices without lines": (
        "Pajek",
        "*Vertices 4\n*Edges\n1 2\n3 4\n",
        ["1", "2", "3", "4"],
        both((0, 1, 1), (2, 3, 1)),
    ),
    "some vertices without lines": ("Pajek", '*Vertices 3\n2 "b"\n*Arcs\n1 3 1\n', ["1", "2", "3"], [[0, 2, 1]]),
    "numbers without labels": ("Pajek", "*Vertices 3\n1\n2\n3\n*Arcs\n1 3\n", ["1", "2", "3"], [[0, 2, 1]]),
    "*Matrix": (
        "Pajek",
        '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Matrix\n0 1.5 0\n0 0 2\n1 0 0\n',
        ["a", "b", "c"],
        [[0, 1, 1.5], [1, 2, 2], [2, 0, 1]],
    ),
    "comments and coordinates": (
        "Pajek",
        '% by hand\n*Network n\n*Vertices 2\n1 "a b" 0.1 0.2 0.5 ellipse ic Red\n2 o\'b 0.3 0.4 0.5\n'
        "% edges\n*Edges\n1 2 3 c Blue w 2\n",
        ["a b", "o'b"],
        both((0, 1, 3)),
    ),
    "two modes": (
        "Pajek",
        '*Vertices 3 2\n1 "a"\n2 "b"\n3 "c"\n*Edges\n1 3\n2 3\n',
        ["a", "b", "c"],
        both((0, 2, 1), (1, 2, 1)),
    ),
    "defaults of nodes and edges": (
        "GraphML",
        f'{HEAD}{KEYS}<graph edgedefault="directed"><node id="a"><data key="c">blue</data></node>'
        '<node id="b"/><node id="c"/><edge source="a" target="b"/><edge source="b" target="c"><data key="w">5</data>'
        "</edge></graph></graphml>",
        ["a", "b", "c"],
        [[0, 1, 2], [1, 2, 5]],
    ),
    "mixed directions in GraphML": (
        "GraphML",
        f'{HEAD}<graph edgedefault="directed"><node id="a"/><node id="b"/><node id="c"/>'
        '<edge source="a" target="b"/><edge source="b" target="c" directed="false"/></graph></graphml>',
        ["a", "b", "c"],
        [[0, 1, 1], [1, 2, 1], [2, 1, 1]],
    ),
    "graphs in nodes": (
        "GraphML",
        f'{HEAD}<graph edgedefault="undirected"><node id="a"><graph id="in" edgedefault="undirected">'
        '<node id="a1"/><node id="a2"/><edge source="a1" target="a2"/></graph></node><node id="b"/>'
        '<edge source="a2" target="b"/></graph></graphml>',
        ["a", "a1", "a2", "b"],
        both((1, 2, 1), (2, 3, 1)),
    ),
    "edges before nodes": (
        "GraphML",
        f'{HEAD}<graph edgedefault="directed"><edge source="a" target="b"/><node id="b"/><node id="a"/>'
        "</graph></graphml>",
        ["b", "a"],
        [[1, 0, 1]],
    ),
    "parallel edges without multigraph": (
        "GML",
        gml(
            "directed 1",
            "node [",
            "id 1",
            "]",
            "node [",
            "id 2",
            "]",
            "edge [",
            "source 1",
            "target 2",
            "value 1",
            "]",
            "edge [",
            "source 1",
            "target 2",
            "]",
            "edge [",
            "source 2",
            "target 1",
            "]",
        ),
        ["1", "2"],
        [[0, 1, 1], [0, 1, 1], [1, 0, 1]],
    ),
    "labels that repeat": (
        "GML",
        gml(
            "node [",
            "id 5",
            'label "Ann"',
            "]",
            "node [",
            "id 7",
            'label "Ann"',
            "]",
            "node [",
            "id 9",
            'label "Bob"',
            "]",
            "edge [",
            "source 5",
            "target 9",
            "]",
        ),
        ["5", "7", "9"],
        both((0, 2, 1)),
    ),
    "Gephi 0.10": ("GEXF", gexf(CLASSES + ONE), ["a", "b", "c"], both((0, 1, 3.0), (1, 2, 2.5))),
    "Gephi 0.9": (
        "GEXF",
        gexf(CLASSES + ONE, space="http://www.gexf.net/1.3"),
        ["a", "b", "c"],
        both((0, 1, 3.0), (1, 2, 2.5)),
    ),
    "mixed directions in GEXF": (
        "GEXF",
        gexf(
            NODES + '<edges><edge source="a" target="b"/><edge source="b" target="c" type="undirected"/>'
            '<edge source="a" target="c" type="mutual"/></edges>',
            "directed",
        ),
        ["a", "b", "c"],
        [[0, 1, 1], [1, 2, 1], [2, 1, 1], [0, 2, 1], [2, 0, 1]],
    ),
    "nodes in nodes": (
        "GEXF",
        gexf(
            '<nodes><node id="a" label="A"><nodes><node id="b" label="B"/></nodes></node>'
            '<node id="c" label="C"/></nodes><edges><edge source="b" target="c"/></edges>'
        ),
        ["a", "b", "c"],
        both((1, 2, 1)),
    ),
}
