"""GEXF 1.0 to 1.3, as Gephi, NetworkX and NetworKit write it.

Defaults count, edges may be directed and undirected in one file, and parallel edges stay. Times are not used.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph, GraphCollector, Row
from gnnexp.datasets.formats.graph_files.typed import AttributeDeclaration, apply_defaults, put_value, typed_value
from gnnexp.datasets.formats.graph_files.xml_events import Event, xml_events

_WEIGHT = AttributeDeclaration("weight", "double", "edge")
_KNOWN = {
    "gexf",
    "meta",
    "creator",
    "description",
    "keywords",
    "graph",
    "attributes",
    "attribute",
    "default",
    "options",
    "nodes",
    "node",
    "edges",
    "edge",
    "attvalues",
    "attvalue",
}
_TIMES = ("start", "end", "startopen", "endopen", "timestamp", "timestamps", "intervals")
_DIRECTED = {"directed": True, "undirected": False, "mutual": False}  # mutual: one edge in each direction


def read_gexf(path: Path, content: bytes) -> AttributedGraph:
    """The graph in the document `content`.

    Raises:
        DataError: it is no GEXF, or has a construct that gnnexp does not read. Names the construct.
    """
    reader = _Reader(GraphCollector(path, "GEXF"))
    for event in xml_events(path, content, "gexf"):
        (reader.open if event.opens else reader.close)(event)
    return reader.graph()


class _Reader:
    """What is known while elements come."""

    def __init__(self, collector: GraphCollector) -> None:
        self.collector = collector
        self.declared: dict[tuple[str, str], AttributeDeclaration] = {("edge", "weight"): _WEIGHT}  # by owner and id
        self.titles: set[tuple[str, str]] = set()  # owners and names of what the file declares
        self.owner, self.dynamic = "", False
        self.default: str | None = None
        self.directed = False
        self.rows: list[Row] = []  # the open nodes and edges
        self.weights: list[tuple[Row, str]] = []
        self.labels: list[tuple[Row, str]] = []
        self.several: Counter[tuple[str, str]] = Counter()  # dynamic attributes with more than one value
        self.unused: Counter[str] = Counter()
        self.num_graphs = 0

    def open(self, event: Event) -> None:
        """An element opens."""
        name, attributes = event.name, event.attributes
        if name == "graph":
            self.num_graphs += 1
            if self.num_graphs > 1:
                raise self.collector.wrong("<graph>", "", "the file has several graphs", "keep one graph in the file")
            self.directed = self._is_directed(attributes.get("defaultedgetype", "undirected"))
        elif name == "attributes":
            self.owner, self.dynamic = attributes.get("class", ""), attributes.get("mode") == "dynamic"
        elif name == "attribute":
            self.default = None
        elif name == "node":
            self._open_node(attributes)
        elif name == "edge":
            self._open_edge(attributes)
        elif name not in _KNOWN:
            self.unused[name.rpartition("}")[2]] += 1

    def close(self, event: Event) -> None:
        """An element closes."""
        if event.name in ("node", "edge"):
            self.rows.pop()
        elif event.name == "default":
            self.default = event.text
        elif event.name == "attribute":
            self._declare(event.attributes)
        elif event.name == "attvalue" and self.rows:
            self._put(event.attributes)

    def _is_directed(self, given: str) -> bool:
        if given not in _DIRECTED:
            raise self.collector.wrong("edge type", given, f"must be one of {', '.join(_DIRECTED)}", "correct the type")
        return _DIRECTED[given]

    def _open_node(self, given: dict[str, str]) -> None:
        row = self.collector.vertex(given.get("id"))
        self.owner = "node"
        self.rows.append(row)
        if "label" in given:
            self.labels.append((row, given["label"]))
        self._count(given, ("pid", *_TIMES))

    def _open_edge(self, given: dict[str, str]) -> None:
        directed = self._is_directed(given["type"]) if given.get("type") else self.directed
        row = self.collector.edge(given.get("source"), given.get("target"), directed=directed)
        self.owner = "edge"
        self.rows.append(row)
        if "weight" in given:
            self.weights.append((row, given["weight"]))
        self._count(given, ("label", "kind", *_TIMES))

    def _count(self, given: dict[str, str], names: tuple[str, ...]) -> None:
        for name in names:
            if name in given:
                self.unused[f"{self.owner} {name}"] += 1

    def _declare(self, attributes: dict[str, str]) -> None:
        key = attributes.get("id", "")
        name = attributes.get("title", key)
        earlier = self.declared.get((self.owner, key))
        if earlier is not None and earlier is not _WEIGHT:
            self.titles.discard((self.owner, earlier.name))
        if (self.owner, name) in self.titles:
            raise self.collector.wrong(
                f"<attribute> {key}",
                name,
                f"two attributes of {self.owner}s have this title",
                "give each attribute a title of its own",
            )
        self.titles.add((self.owner, name))
        self.declared[self.owner, key] = AttributeDeclaration(
            name, attributes.get("type", "string"), self.owner, self.default, self.dynamic
        )

    def _put(self, attributes: dict[str, str]) -> None:
        key = attributes.get("for", attributes.get("id", ""))
        declaration = self.declared.get((self.owner, key))
        if declaration is None:
            raise self.collector.wrong(
                "<attvalue>", key, f"no attribute of {self.owner}s has this id", "declare the attribute"
            )
        row = self.rows[-1]
        if declaration.dynamic and declaration.name in row:
            self.several[self.owner, declaration.name] += 1
        else:
            put_value(self.collector, row, declaration, attributes.get("value", ""))

    def graph(self) -> AttributedGraph:
        """The graph, once the document has ended."""
        if not self.num_graphs:
            raise self.collector.wrong("<graph>", None, "the file has no graph", "write it again")
        replaced = self._weights()
        notes = [f"{replaced} edges have a weight, and another attribute weight that is not used"] if replaced else []
        notes += apply_defaults(self.collector, list(self.declared.values()))
        for (owner, name), count in self.several.items():
            for row in self.collector.vertices if owner == "node" else self.collector.edges:
                row.pop(name, None)
            notes.append(f"{name} of {owner}s is not used: {count} values are for other times")
        unused = ", ".join(f"{name} ({count})" for name, count in self.unused.items())
        notes += [f"not used: {unused}"] if unused else []
        return self.collector.graph(display=self._labels(), notes=notes)

    def _weights(self) -> int:
        """Put the XML attribute `weight`. Returns the number of edges whose other attribute it replaces."""
        replaced = 0
        for row, text in self.weights:
            earlier = row.pop("weight", None)
            put_value(self.collector, row, _WEIGHT, text)
            replaced += earlier is not None and earlier != row["weight"]
        return replaced

    def _labels(self) -> frozenset[str]:
        """Put the XML attribute `label`, unless the file declares an attribute of this name."""
        if any(one.name == "label" and one.owner == "node" for one in self.declared.values()):
            return frozenset()
        for row, text in self.labels:
            row["label"] = typed_value("string", text)
        return frozenset(["label"])
