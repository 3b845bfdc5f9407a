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
    found = GraphCollector(path, "node-link")
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        raise found.wrong(
            "nodes",
            type(content).__name__,
            "needs nodes and edges, as networkx.node_link_data writes them",
            "write it again with networkx, or correct it",
        )
    there = [key for key in ("edges", "links") if isinstance(content.get(key), list)]
    if not there:
        raise found.wrong("edges", None, "there is no list of edges or links", "write edges: [...]")
    filled = [key for key in there if content[key]]
    if len(filled) > 1:
        raise found.wrong("edges", "edges and links", "there are two lists of edges", "keep one of them")
    key = (filled or there)[0]
    directed = bool(content.get("directed", False))
    for place, one in enumerate(content["nodes"], 1):
        if not isinstance(one, dict) or "id" not in one:
            raise found.wrong(f"node {place}", one, "has no id", "give each node an id")
        found.vertex(_name(found, one["id"])).update({name: value for name, value in one.items() if name != "id"})
    for place, one in enumerate(content[key], 1):
        if not isinstance(one, dict) or not {"source", "target"} <= one.keys():
            raise found.wrong(f"edge {place}", one, "has no source or no target", "give both ends")
        row = found.edge(_name(found, one["source"]), _name(found, one["target"]), directed=directed)
        row.update({name: value for name, value in one.items() if name not in _ENDS})
    return found.graph()


def _name(found: GraphCollector, value: Any) -> Any:  # noqa: ANN401
    """An id; NetworkX writes tuples as lists.

    Raises:
        DataError: it has a dictionary, which is no id.
    """
    if isinstance(value, list):
        return tuple(_name(found, one) for one in value)
    if isinstance(value, dict):
        raise found.wrong("id", value, "is no id", "give each node a number or a text as its id")
    return value
