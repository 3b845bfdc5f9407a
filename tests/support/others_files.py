"""Writes `tests/datasets/formats/graph_files/others/*.jsonl`: files that igraph, NetworkX and NetworKit make.

Each line has a file's text, which library reads it best, what that reads, and what the others make of it. Needs
`pip install igraph networkit`; the tests do not. Run it from the repository: `python tests/support/others_files.py`.
"""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx
from hand_files import FILES
from others_records import ENDINGS, PLACE, arcs, columns, plain, score

IGRAPH_FORMATS = {"GraphML": "graphml", "GML": "gml", "Pajek": "pajek"}
EDGES = [(0, 1), (1, 2), (3, 2), (0, 3)]


def variants() -> dict[str, dict[str, Any]]:
    """What the graphs have: edges, directions, names, attributes of vertices and of edges, defaults."""
    names = ["ann", "bob b", "zoë", "1.10"]
    ages, towns = [3, 5, 7, 11], ["x", "y", "x", "z"]
    plain: dict[str, Any] = {"edges": EDGES, "directed": False, "names": names, "vertices": {}, "edge_data": {}}
    weights = [0.5, 2.0, 0.25, 1e-3]
    return {
        "undirected": plain,
        "directed": {**plain, "directed": True},
        "parallel edges": {
            **plain,
            "directed": True,
            "edges": [*EDGES, (0, 1), (1, 0)],
            "edge_data": {"weight": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]},
        },
        "loops": {**plain, "edges": [*EDGES, (2, 2)]},
        "no names": {**plain, "names": None},
        "equal names": {**plain, "names": ["ann", "bob", "ann", "eve"]},
        "defaults": {
            **plain,
            "vertices": {"town": [None, "y", None, "z"]},
            "edge_data": {"weight": [None, 3.0, None, 4.0]},
            "defaults": {"town": "x", "weight": 2.0},
        },
        "weights": {**plain, "edge_data": {"weight": weights}},
        "large integers": {
            **plain,
            "vertices": {"views": [1, 2**31, 2**40, -(2**35)]},
            "edge_data": {"weight": [1, 2**31, 2**33, 3]},
        },
        "missing values": {
            **plain,
            "vertices": {"age": [3.5, None, 7.0, None], "town": ["x", None, "y", None]},
            "edge_data": {"weight": [0.5, None, 2.0, None]},
        },
        "mixed types": {
            **plain,
            "vertices": {
                "age": ages,
                "town": towns,
                "member": [True, False, True, True],
                "height": [1.5, 2.0, 1e-5, 1e20],
            },
        },
    }


# --- writers ----------------------------------------------------------------------------------------------------------
def by_igraph(variant: dict[str, Any], form: str, path: Path) -> None:
    import igraph

    graph = igraph.Graph(n=4, edges=variant["edges"], directed=variant["directed"])
    if variant["names"]:
        graph.vs["name"] = variant["names"]
        if form == "GML":
            graph.vs["label"] = variant["names"]
    for sequence, data in ((graph.vs, variant["vertices"]), (graph.es, variant["edge_data"])):
        for name, values in data.items():
            if form == "Pajek" and name != "weight":
                continue
            texts = any(isinstance(one, str) for one in values)
            sequence[name] = [("" if one is None else one) if texts else one for one in values]
    graph.write(str(path), format=IGRAPH_FORMATS[form])


def by_networkx(variant: dict[str, Any], form: str, path: Path) -> None:
    several = len(set(variant["edges"])) < len(variant["edges"])
    graph: Any = {
        (False, False): nx.Graph,
        (False, True): nx.MultiGraph,
        (True, False): nx.DiGraph,
        (True, True): nx.MultiDiGraph,
    }[variant["directed"], several]()
    names = variant["names"] or range(4)
    if form.endswith("list"):  # NetworkX writes names with spaces so that nobody can read them
        names = [str(one).replace(" ", "_") for one in names]
    equal = len(set(names)) < 4
    nodes = list(range(4)) if equal else list(names)
    for place, node in enumerate(nodes):
        data = {name: values[place] for name, values in variant["vertices"].items() if values[place] is not None}
        graph.add_node(node, **data, **({"label": names[place]} if equal else {}))
    for place, (u, v) in enumerate(variant["edges"]):
        graph.add_edge(
            nodes[u],
            nodes[v],
            **{name: values[place] for name, values in variant["edge_data"].items() if values[place] is not None},
        )
    if "defaults" in variant:
        graph.graph["node_default"] = {"town": variant["defaults"]["town"]}
        graph.graph["edge_default"] = {"weight": variant["defaults"]["weight"]}
    if form == "node-link":
        path.write_text(json.dumps(nx.node_link_data(graph)), "utf-8")
    else:
        if form in ("GML", "Pajek", "adjacency list"):
            graph.graph.clear()
        writers: dict[str, Callable[..., None]] = {
            "GraphML": nx.write_graphml,
            "GML": nx.write_gml,
            "Pajek": nx.write_pajek,
            "GEXF": nx.write_gexf,
            "edge list": nx.write_edgelist,
            "adjacency list": nx.write_adjlist,
        }
        writers[form](graph, str(path))


def by_networkit(variant: dict[str, Any], form: str, path: Path) -> None:
    import networkit

    weights = variant["edge_data"].get("weight")
    graph = networkit.Graph(4, weighted=weights is not None, directed=variant["directed"])
    for place, (u, v) in enumerate(variant["edges"]):
        graph.addEdge(u, v, 1.0 if weights is None or weights[place] is None else float(weights[place]))
    networkit.writeGraph(graph, str(path), getattr(networkit.Format, form))


WRITERS: dict[str, tuple[Callable[[dict[str, Any], str, Path], None], tuple[str, ...]]] = {
    "igraph": (by_igraph, ("GraphML", "GML", "Pajek")),
    "networkx": (by_networkx, ("GraphML", "GML", "Pajek", "GEXF", "node-link", "edge list", "adjacency list")),
    "networkit": (by_networkit, ("GraphML", "GML", "GEXF", "METIS")),
}


# --- readers ----------------------------------------------------------------------------------------------------------
def read_igraph(form: str, path: Path) -> dict[str, Any]:
    import igraph

    if form not in IGRAPH_FORMATS:
        raise NotImplementedError
    graph = igraph.Graph.Read(str(path), format=IGRAPH_FORMATS[form])
    rows = [vertex.attributes() for vertex in graph.vs]
    shown = [row.get("name" if form == "Pajek" else "label") for row in rows]
    use = form != "GraphML" and None not in shown and "" not in shown and len(set(shown)) == len(shown)
    ids = (
        shown
        if use
        else range(1, len(rows) + 1)
        if form == "Pajek"
        else [row["id"] if isinstance(row["id"], str) else int(row["id"]) for row in rows]
    )
    edges = [(*edge.tuple, plain(edge.attributes().get("weight"))) for edge in graph.es]
    return {"ids": [str(one) for one in ids], "arcs": arcs(edges, graph.is_directed()), "vertices": columns(rows)}


def read_networkx(form: str, path: Path) -> dict[str, Any]:
    readers: dict[str, Callable[[Path], Any]] = {
        "GraphML": nx.read_graphml,
        "GML": nx.read_gml,
        "Pajek": nx.read_pajek,
        "GEXF": nx.read_gexf,
        "node-link": lambda place: nx.node_link_graph(json.loads(place.read_text("utf-8"))),
        "edge list": lambda place: nx.read_edgelist(place, create_using=kind),
        "adjacency list": lambda place: nx.read_adjlist(place, create_using=kind),
    }
    if form not in readers:
        raise NotImplementedError
    kind = nx.MultiDiGraph if " directed" in path.stem or " parallel" in path.stem else nx.MultiGraph
    graph = readers[form](path)
    number = {name: place for place, name in enumerate(graph)}
    edges = [(number[u], number[v], data.get("weight")) for u, v, data in graph.edges(data=True)]
    return {
        "ids": [str(one) for one in graph],
        "arcs": arcs(edges, graph.is_directed()),
        "vertices": columns([data for _, data in graph.nodes(data=True)]),
    }


def read_networkit(form: str, path: Path) -> dict[str, Any]:
    import networkit

    if form not in ("GraphML", "GML", "GEXF", "METIS"):
        raise NotImplementedError
    graph = networkit.readGraph(str(path), getattr(networkit.Format, form))
    graph = graph[0] if isinstance(graph, tuple) else graph  # GEXF: the graph and its events
    edges = [(u, v, weight) for u, v, weight in graph.iterEdgesWeights()]
    return {"ids": None, "arcs": arcs(edges, graph.isDirected()), "vertices": {}}


VERSIONS = {name: version(name) for name in ("igraph", "networkx", "networkit")}
READERS = {"igraph": read_igraph, "networkx": read_networkx, "networkit": read_networkit}


def readings(form: str, path: Path, readers: Iterable[str]) -> dict[str, dict[str, Any] | str]:
    """What each library makes of a file, or its error."""
    found: dict[str, dict[str, Any] | str] = {}
    for name in readers:
        reader = READERS[name]
        try:
            found[name] = reader(form, path)
        except NotImplementedError:
            continue
        except (Exception, SystemExit) as error:  # libraries raise errors of any class
            said = " ".join(str(error).split()) or type(error).__name__
            found[name] = f"error: {said.replace(str(path), 'FILE')[:120]}"
    return found


def truth(variant: dict[str, Any], library: str, form: str) -> dict[str, Any]:
    """The graph that a library was given, without what it does not write in this format."""
    defaults = variant.get("defaults", {}) if library == "networkx" and form in ("GraphML", "GEXF") else {}
    if form == "GEXF":
        defaults = {key: value for key, value in defaults.items() if key != "weight"}  # NetworkX does not write it
    without = form == "adjacency list" or (library, form) == ("networkit", "GML")
    weights = None if without else variant["edge_data"].get("weight")
    weights = weights or [None] * len(variant["edges"])
    edges = [
        (u, v, defaults.get("weight") if weight is None else weight)
        for (u, v), weight in zip(variant["edges"], weights, strict=True)
    ]
    none = library == "networkit" or form.endswith("list") or (library, form) == ("igraph", "Pajek")
    written = (
        {}
        if none
        else {name: values for name, values in variant["vertices"].items() if form != "Pajek" or name == "town"}
    )  # NetworkX writes texts only
    filled = {
        name: [defaults.get(name) if one is None else plain(one) for one in values] for name, values in written.items()
    }
    ids = variant["names"]
    if form.endswith("list"):
        ids = [str(one).replace(" ", "_") for one in (range(4) if ids is None or len(set(ids)) < 4 else ids)]
    return {"ids": ids, "arcs": arcs(edges, variant["directed"]), "vertices": filled}


def records(library: str, folder: Path) -> Iterator[dict[str, Any]]:
    """One for each format and variant that the library writes."""
    writer, forms = WRITERS[library]
    for form in forms:
        for name, variant in variants().items():
            path = folder / f"{library} {name}{ENDINGS[form]}"
            try:
                writer(variant, form, path)
            except (ValueError, RuntimeError) as error:
                print(f"{library} does not write {form}, {name}: {error}")
                continue
            yield record(library, form, name, truth(variant, library, form), path)


def hand_records(folder: Path) -> Iterator[dict[str, Any]]:
    """One for each file that is written by hand."""
    for place, (name, (form, text, ids, found)) in enumerate(FILES.items()):
        path = folder / f"hand {place}{ENDINGS[form]}"
        path.write_text(text, "utf-8")
        yield record("hand", form, name, {"ids": ids, "arcs": sorted(found), "vertices": None}, path)


def record(library: str, form: str, name: str, right: dict[str, Any], path: Path) -> dict[str, Any]:
    """A file, what is in it, and what the libraries read."""
    # A reader of NetworKit 11.3 ended the process at a file that was written by hand
    found = readings(form, path, ("igraph", "networkx") if library == "hand" else READERS)
    if right["vertices"] is None:  # of files by hand, the best reader says what vertices have
        right["vertices"] = next((one["vertices"] for one in found.values() if not isinstance(one, str)), {})
    best = max(found, key=lambda one: score(found[one], right))
    text = re.sub(r'(Creator "igraph version \S+)[^"]*', r"\1", path.read_text("utf-8"))
    text = re.sub(r'lastmodifieddate="[^"]*"', 'lastmodifieddate="2026-11-29"', text)
    outcomes = {
        one: what if isinstance(what, str) else ("other edges", "other edges", "edges", "all")[score(what, right)]
        for one, what in found.items()
    }
    return {
        "library": library,
        "version": VERSIONS.get(library),
        "format": form,
        "variant": name,
        "written": right,
        "best": best,
        "best_version": VERSIONS[best],
        "best_reads": found[best],
        "outcomes": outcomes,
        "text": text,
    }


def main() -> None:
    """Write the files again."""
    warnings.simplefilter("ignore")
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for library in (*WRITERS, "hand"):
            made = hand_records(Path(folder)) if library == "hand" else records(library, Path(folder))
            lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in made]
            (PLACE / f"{library}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
            print(f"{library}: {len(lines)} files")


if __name__ == "__main__":
    main()
