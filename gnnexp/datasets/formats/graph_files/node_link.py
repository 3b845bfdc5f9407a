"""Node-link JSON, as NetworkX (`node_link_data`) and D3 write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph, GraphCollector

_ENDS = ("source", "target", "key")


def read_node_link(path: Path, content: object) -> AttributedGraph:
    """The graph in parsed JSON. Edges may be in `edges` or in `links`; parallel edges stay.

    Raises:
        DataError: nodes or edges are missing or wrong. Names the first.
    """
    collector = GraphCollector(path, "node-link")
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        raise collector.wrong(
            "nodes",
            type(content).__name__,
            "needs nodes and edges, as networkx.node_link_data writes them",
            "write it again with networkx, or correct it",
        )
    keys = [key for key in ("edges", "links") if isinstance(content.get(key), list)]
    if not keys:
        raise collector.wrong("edges", None, "there is no list of edges or links", "write edges: [...]")
    filled = [key for key in keys if content[key]]
    if len(filled) > 1:
        raise collector.wrong("edges", "edges and links", "there are two lists of edges", "keep one of them")
    key = (filled or keys)[0]
    directed = bool(content.get("directed", False))
    for place, entry in enumerate(content["nodes"], 1):
        if not isinstance(entry, dict) or "id" not in entry:
            raise collector.wrong(f"node {place}", entry, "has no id", "give each node an id")
        collector.vertex(_name(collector, entry["id"])).update(
            {name: value for name, value in entry.items() if name != "id"}
        )
    for place, entry in enumerate(content[key], 1):
        if not isinstance(entry, dict) or not {"source", "target"} <= entry.keys():
            raise collector.wrong(f"edge {place}", entry, "has no source or no target", "give both ends")
        row = collector.edge(_name(collector, entry["source"]), _name(collector, entry["target"]), directed=directed)
        row.update({name: value for name, value in entry.items() if name not in _ENDS})
    return collector.graph()


def _name(collector: GraphCollector, value: Any) -> Any:  # noqa: ANN401
    """An id; NetworkX writes tuples as lists.

    Raises:
        DataError: it has a dictionary, which is no id.
    """
    if isinstance(value, list):
        return tuple(_name(collector, part) for part in value)
    if isinstance(value, dict):
        raise collector.wrong("id", value, "is no id", "give each node a number or a text as its id")
    return value
