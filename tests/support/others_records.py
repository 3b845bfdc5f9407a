"""Files of other libraries (`tests/datasets/formats/graph_files/others`), what is in them, and the table of the docs.

`others_files.py` writes the files. `python tests/support/others_records.py` writes the table into the page.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.formats.metis import Metis
from gnnexp.datasets.formats.networkx_files import NetworkX, read_graph_file
from gnnexp.errors import DataError

PLACE = Path(__file__).parents[1] / "datasets" / "formats" / "graph_files" / "others"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "formats.md"
LIBRARIES = {"igraph": "igraph", "networkx": "NetworkX", "networkit": "NetworKit", "hand": "other programs"}
ENDINGS = {
    "GraphML": ".graphml",
    "GML": ".gml",
    "Pajek": ".net",
    "GEXF": ".gexf",
    "node-link": ".json",
    "edge list": ".edgelist",
    "adjacency list": ".adjlist",
    "METIS": ".graph",
}
NOT_COMPARED = {"id", "label", "name", "x", "y", "z", "shape", "viz", "type"}
BEGIN, END = "<!-- others: begin -->\n", "<!-- others: end -->\n"


def records() -> list[dict[str, Any]]:
    """All files, with what libraries read in them."""
    return [
        json.loads(line) for name in LIBRARIES for line in (PLACE / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]


def plain(value: Any) -> Any:
    """Numbers and truth values as float; no number, and no text, as None."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    return float(value) if isinstance(value, bool | int | float) else value


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Attributes that are compared, by name; those that are missing everywhere are left out."""
    names = sorted({name for row in rows for name in row if name not in NOT_COMPARED})
    found = {name: [plain(row.get(name)) for row in rows] for name in names}
    return {name: values for name, values in found.items() if any(one is not None for one in values)}


def arcs(edges: list[tuple[int, int, Any]], directed: bool) -> list[list[float]]:
    """Every arc with its weight; an undirected edge is two, unless it is a loop."""
    rows = [[u, v, 1.0 if plain(weight) is None else float(weight)] for u, v, weight in edges]
    rows += [] if directed else [[v, u, weight] for u, v, weight in rows if u != v]
    return sorted(rows)


def common(graph: AttributedGraph) -> dict[str, Any]:
    """What gnnexp reads, in the form of the records."""
    weights = [data.get("weight") for data in graph.edges]
    rows = [
        row
        for (u, v), directed, weight in zip(graph.ends.tolist(), graph.directed.tolist(), weights, strict=True)
        for row in arcs([(u, v, weight)], directed)
    ]
    return {"ids": [str(one) for one in graph.names], "arcs": sorted(rows), "vertices": columns(list(graph.vertices))}


def read(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What gnnexp reads in the file of a record.

    Raises:
        DataError: it refuses the file.
    """
    path = folder / f"x{ENDINGS[record['format']]}"
    path.write_text(record["text"], "utf-8")
    if record["format"] == "METIS":
        [edges] = Metis(path=str(path), symmetrize=False).read().edges
        weights = [1.0] * edges.source.size if edges.weight is None else edges.weight.tolist()
        rows = zip(edges.source.tolist(), edges.destination.tolist(), weights, strict=True)
        return {"ids": None, "arcs": sorted(map(list, rows)), "vertices": {}}
    directed = record["variant"] in ("directed", "parallel edges")  # lists do not say it
    NetworkX(path=str(path), directed=directed, empty="zero").read()  # refuses weights that are no numbers
    return common(read_graph_file(path, directed=directed))


def score(found: dict[str, Any] | str, right: dict[str, Any]) -> int:
    """How much of the graph is there: 2 for the edges with their weights, 1 for the attributes of vertices."""
    if isinstance(found, str):
        return -1
    if found["ids"] and right["ids"] and len(found["ids"]) != len(right["ids"]):
        return 0
    place = list(range(len(right["ids"] or found["ids"] or range(4))))
    if found["ids"] and right["ids"] and sorted(found["ids"]) == sorted(right["ids"]):  # vertices in another order
        place = [right["ids"].index(one) for one in found["ids"]]
    rows = sorted([place[u], place[v], weight] for u, v, weight in found["arcs"])
    return 2 * (rows == right["arcs"]) + (found["vertices"] == right["vertices"])


# --- the table --------------------------------------------------------------------------------------------------------
def outcome(record: dict[str, Any], folder: Path) -> str:
    """Whether gnnexp reads a file as it was written, or as the library that reads it best."""
    try:
        found = read(record, folder)
    except DataError:
        return "refused"
    best = record["best_reads"]
    right = max(score(found, record["written"]), -1 if isinstance(best, str) else score(found, best))
    return {3: "all", 2: "edges"}.get(right, "other edges")


def table() -> str:
    """How many files of each library and format are read right."""
    found = records()
    version = {one["best"]: one["best_version"] for one in found}
    lines = [
        "| written by | format | files | gnnexp | "
        + " | ".join(f"{LIBRARIES[name]} {version[name]}" for name in ("igraph", "networkx", "networkit"))
        + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for library, shown in LIBRARIES.items():
        for form in ENDINGS:
            some = [one for one in found if one["library"] == library and one["format"] == form]
            if some:
                lines.append(f"| {shown} | {form} | {len(some)} | {' | '.join(_cells(library, some))} |")
    return "\n".join(lines) + "\n"


def _cells(library: str, some: list[dict[str, Any]]) -> Iterator[str]:
    """How many files are read right by gnnexp, igraph, NetworkX and NetworKit. For some, only edges count."""
    with tempfile.TemporaryDirectory() as folder:
        yield _cell([outcome(one, Path(folder)) for one in some], ("all", "edges") if library == "hand" else ("all",))
    for name in ("igraph", "networkx", "networkit"):
        right = ("all", "edges") if "hand" in library or name == "networkit" else ("all",)
        yield _cell([one["outcomes"][name] for one in some if name in one["outcomes"]], right)


def _cell(outcomes: list[str], right: tuple[str, ...]) -> str:
    if not outcomes:
        return "–"
    refused = sum(one.startswith(("refused", "error")) for one in outcomes)
    wrong = sum(one not in right for one in outcomes) - refused
    found = len(outcomes) - refused - wrong
    return ", ".join([str(found), *[f"{refused} refused"] * bool(refused), *[f"{wrong} wrong"] * bool(wrong)])


def page() -> Iterator[str]:
    """The page with the table of now."""
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    yield from (before, BEGIN, table(), END, rest.split(END)[1])


if __name__ == "__main__":
    PAGE.write_text("".join(page()), "utf-8")
