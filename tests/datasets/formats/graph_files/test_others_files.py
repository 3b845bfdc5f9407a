"""Files of igraph, NetworkX and NetworKit are read as by the library that reads them best, or as what was written.

`tests/support/others_files.py` wrote the files, and what the libraries make of them.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.formats.metis import Metis
from gnnexp.datasets.formats.networkx_files import read_graph_file
from gnnexp.errors import DataError

ENDINGS = {"GraphML": ".graphml", "GML": ".gml", "Pajek": ".net", "GEXF": ".gexf", "node-link": ".json",
           "edge list": ".edgelist", "adjacency list": ".adjlist", "METIS": ".graph"}
NOT_COMPARED = {"id", "label", "name", "x", "y", "z", "shape"}
PLACE = Path(__file__).parent / "others"
RECORDS = [json.loads(line) for name in ("igraph", "networkx", "networkit", "hand")
           for line in (PLACE / f"{name}.jsonl").read_text("utf-8").splitlines()]


def plain(value: Any) -> Any:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    return float(value) if isinstance(value, bool | int | float) else value


def common(graph: AttributedGraph) -> dict[str, Any]:
    """Arcs with their weights and attributes of vertices, in the form of the records."""
    rows = []
    for (u, v), directed, data in zip(graph.ends.tolist(), graph.directed.tolist(), graph.edges, strict=True):
        weight = 1.0 if plain(data.get("weight")) is None else float(data["weight"])
        rows += [[u, v, weight]] + [[v, u, weight]] * (not directed and u != v)
    names = {name for row in graph.vertices for name in row if name not in NOT_COMPARED}
    columns = {name: [plain(row.get(name)) for row in graph.vertices] for name in names}
    return {"arcs": sorted(rows), "vertices": {name: values for name, values in columns.items() if any(
        one is not None for one in values)}}


def called(record: dict[str, Any]) -> str:
    return f"{record['library']}-{record['format']}-{record['variant'].replace(' ', '_')}"


METIS = [record for record in RECORDS if record["format"] == "METIS"]
OTHERS = [record for record in RECORDS if record["format"] != "METIS"]


@pytest.mark.parametrize("record", METIS, ids=called)
def test_metis_of_networkit(record: dict[str, Any], tmp_path: Path) -> None:
    """Edges are those that NetworKit reads. Weights with fractions and loops are not METIS's, and are refused."""
    (tmp_path / "x.graph").write_text(record["text"])
    reader = Metis(path=str(tmp_path / "x.graph"), symmetrize=False)
    said = {"loops": "are their own neighbours", "weights": "whole numbers", "missing values": "whole numbers"}.get(
        record["variant"])
    if said:
        with pytest.raises(DataError, match=said):
            reader.read()
        return
    [edges] = reader.read().edges
    weights = [1.0] * edges.source.size if edges.weight is None else edges.weight.tolist()
    rows = zip(edges.source.tolist(), edges.destination.tolist(), weights, strict=True)
    assert sorted(map(list, rows)) == record["best_reads"]["arcs"]


@pytest.mark.parametrize("record", OTHERS, ids=called)
def test_a_file_is_read_as_by_the_library_that_reads_it_best(record: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"x{ENDINGS[record['format']]}"
    path.write_text(record["text"], "utf-8")
    directed = record["variant"] in ("directed", "parallel edges")  # lists do not say it
    graph = read_graph_file(path, directed=directed)
    found, best = common(graph), record["best_reads"]
    if record["library"] == "hand":
        assert found["arcs"] == record["written"]["arcs"]
        assert [str(one) for one in graph.names] == record["written"]["ids"]
        return
    for part in ("arcs", "vertices"):
        assert found[part] in (record["written"][part], best[part])
        if best[part] == record["written"][part]:
            assert found[part] == best[part]
    if best["ids"] is not None:
        assert [str(one) for one in graph.names] in (best["ids"], record["written"]["ids"])
