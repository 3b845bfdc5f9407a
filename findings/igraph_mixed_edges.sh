#!/usr/bin/env bash
# igraph 1.0.0 reads a file with directed and undirected edges without a warning, and gives all edges one kind.
#
# GraphML: only `edgedefault` counts, `directed` of an edge is skipped and not kept as an attribute. An undirected edge
# becomes an arc one way, so paths are lost; or an arc becomes an edge both ways, so paths appear.
# Pajek: the kind of the last section counts. Arc 1-2 and edge 2-3 are a directed graph if *Edges comes first, and an
# undirected one if *Arcs comes first. So two files that differ only in the order of sections are two graphs.
# NetworkX 3.6.1 refuses such GraphML with an error, so igraph is what one turns to. The manual of Python's igraph says
# nothing of it. To be safe: replace each undirected edge by two arcs before igraph reads the file.
# The right graph of all four files has paths a-b, b-c, a-c, c-b, and no path from b or c to a.
#
# Packages: igraph 1.0.0. Nothing of gnnexp is used. Python's warnings are errors here, so there are none.
# Seen: what `wanted` says below.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'igraph==1.0.0'

cat > "$place/mixed.py" <<'PYTHON'
import math
from pathlib import Path

import igraph

XML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="{default}">
<node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b" directed="true"/>
<edge source="b" target="c" directed="false"/>
</graph></graphml>"""
NAMES, ARCS, EDGES = '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n', "*Arcs\n1 2\n", "*Edges\n2 3\n"


def tell(name: str, graph: igraph.Graph) -> None:
    """Print the pairs that a path joins."""
    far = graph.distances()
    if graph.is_directed():
        far = graph.distances(mode="out")
    paths = ["abc"[i] + "abc"[j] for i in range(3) for j in range(3) if i != j and far[i][j] < math.inf]
    print(f"{name}: {'directed' if graph.is_directed() else 'undirected'}, paths {' '.join(paths)},"
          f" attributes of edges {graph.es.attributes()}")


for default in ("directed", "undirected"):
    Path("mixed.graphml").write_text(XML.format(default=default))
    tell(f"GraphML, {default}", igraph.Graph.Read_GraphML("mixed.graphml"))
for name, sections in (("edges, arcs", EDGES + ARCS), ("arcs, edges", ARCS + EDGES)):
    Path("mixed.net").write_text(NAMES + sections)
    tell(f"Pajek, {name}", igraph.Graph.Read_Pajek("mixed.net"))
PYTHON

seen=$(cd "$place" && env/bin/python -W error mixed.py 2>&1) || true
wanted="GraphML, directed: directed, paths ab ac bc, attributes of edges []
GraphML, undirected: undirected, paths ab ac ba bc ca cb, attributes of edges []
Pajek, edges, arcs: directed, paths ab ac bc, attributes of edges []
Pajek, arcs, edges: undirected, paths ab ac ba bc ca cb, attributes of edges []"
printf '%s\n' "$seen"
[ "$seen" = "$wanted" ] || { echo "the behaviour has changed"; exit 1; }
