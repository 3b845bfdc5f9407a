"""GraphML as igraph, NetworkX, NetworKit, graph-tool, Gephi and yEd write it.

Defaults count, edges may be directed and undirected in one file, and parallel edges stay.
"""

from __future__ import annotations

from pathlib import Path

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph, GraphCollector, Row
from gnnexp.datasets.formats.graph_files.typed import AttributeDeclaration, apply_defaults, put_value
from gnnexp.datasets.formats.graph_files.xml_events import Event, xml_events

_NODE_LABEL = "{http://www.yworks.com/xml/graphml}NodeLabel"
_OWNERS = {"node", "edge", "all"}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def read_graphml(path: Path, content: bytes) -> AttributedGraph:
    """The graph in the document `content`.

    Raises:
        DataError: it is no GraphML, or has a construct that gnnexp does not read. Names the construct.
    """
    reader = _Reader(GraphCollector(path, "GraphML"))
    for event in xml_events(path, content, "graphml"):
        (reader.open if event.opens else reader.close)(event)
    return reader.graph()


class _Reader:
    """What is known while elements come."""

    def __init__(self, collector: GraphCollector) -> None:
        self.collector = collector
        self.keys: dict[str, AttributeDeclaration | None] = {}  # None: yEd's drawing
        self.owners: dict[str, set[str]] = {}  # of the keys with each attr.name
        self.default: str | None = None
        self.graphs: list[bool] = []  # whether edges are directed, for each graph that is open
        self.num_graphs = self.num_nested = self.num_ports = self.num_drawn = 0
        self.rows: list[Row | None] = []  # the open nodes and edges; None: their attributes are not read
        self.display: set[str] = set()

    def open(self, event: Event) -> None:
        """An element opens."""
        name, attributes = event.name, event.attributes
        if name == "graph":
            self._open_graph(attributes, event.parent)
        elif name == "node":
            self.rows.append(self.collector.vertex(attributes.get("id")))
        elif name == "edge":
            directed = self._is_directed(attributes.get("directed"))
            self.rows.append(self.collector.edge(attributes.get("source"), attributes.get("target"), directed=directed))
        elif name == "hyperedge":
            raise self.collector.wrong(
                "<hyperedge>",
                attributes.get("id", ""),
                "edges between more than two nodes are not read",
                "make a node of each hyperedge",
            )
        elif name == "port":
            self.num_ports += event.parent == "node"
        elif name == "key":
            self.default = None

    def close(self, event: Event) -> None:
        """An element closes."""
        name = event.name
        if name == "graph":
            self.graphs.pop()
        elif name in ("node", "edge"):
            self.rows.pop()
        elif name == "default":
            self.default = event.text
        elif name == "key":
            self._declare(event.attributes)
        elif name == "data" and event.parent in ("node", "edge"):
            self._put(event)
        elif name == _NODE_LABEL and self.rows and self.rows[-1] is not None and "label" not in self.rows[-1]:
            self.rows[-1]["label"] = event.text.strip()
            self.display.add("label")

    def _open_graph(self, given: dict[str, str], parent: str) -> None:
        if parent == "graphml":
            self.num_graphs += 1
            if self.num_graphs > 1:
                raise self.collector.wrong(
                    "<graph>", given.get("id", ""), "the file has several graphs", "keep one graph in the file"
                )
        else:
            self.num_nested += 1
        self.graphs.append(given.get("edgedefault") == "directed")

    def _is_directed(self, given: str | None) -> bool:
        if given is None:
            return bool(self.graphs and self.graphs[-1])
        if given.lower() not in _TRUTH:
            raise self.collector.wrong("edge, directed", given, "must be true or false", "correct the edge")
        return _TRUTH[given.lower()]

    def _declare(self, attributes: dict[str, str]) -> None:
        key, name = attributes.get("id", ""), attributes.get("attr.name")
        owner = attributes.get("for", "all")
        if "yfiles.type" in attributes:
            self.keys[key] = None
            return
        if name is None:
            name = key
        same = self.owners.setdefault(name, set())
        if same if owner == "all" else same & {owner, "all"}:
            raise self.collector.wrong(
                f"<key> {key}", name, f"two keys for {owner} have this attr.name", "give each key a name of its own"
            )
        if owner in ("node", "all") and key == "label" and name == "Label":  # Gephi's name of a node
            self.display.add(name)
        same |= {owner} & _OWNERS
        self.keys[key] = AttributeDeclaration(name, attributes.get("attr.type", "string"), owner, self.default)

    def _put(self, event: Event) -> None:
        key = event.attributes.get("key", "")
        if key not in self.keys:
            raise self.collector.wrong("<data>", key, "there is no <key> with this id", "declare the attribute")
        declared, row = self.keys[key], self.rows[-1]
        if declared is None:
            self.num_drawn += 1
        elif row is not None:
            put_value(self.collector, row, declared, event.text)

    def graph(self) -> AttributedGraph:
        """The graph, once the document has ended."""
        if not self.num_graphs:
            raise self.collector.wrong("<graph>", None, "the file has no graph", "write it again")
        notes = apply_defaults(
            self.collector, [declaration for declaration in self.keys.values() if declaration is not None]
        )
        counts = (
            (self.num_nested, "graphs in nodes, whose nodes are vertices as all others"),
            (self.num_ports, "ports are not used"),
            (self.num_drawn, "drawings of yEd are not used"),
        )
        notes += [f"{count} {said}" for count, said in counts if count]
        return self.collector.graph(display=frozenset(self.display), notes=notes)
