#!/usr/bin/env bash
# NetworKit 11.3 writes other weights than the graph has, without a word: GML has none, GEXF repeats the first one.
#
# GML: the writer leaves out all weights, and the reader skips those in a file. So a weighted graph comes back, from
# NetworKit's own file or from another tool's, as an unweighted one: each edge weighs 1. The manual of the writer says
# only "Writes a graph and its coordinates as a GML file". (Of parallel edges, the reader of GML keeps one.)
# GEXF: of parallel edges (`addEdge` makes them), each gets the weight of the first, since the writer asks the graph for
# the weight of the pair. Sums of weights are wrong; the number of edges is right, so no count tells.
# GraphML, of the same library and the same graph, keeps all weights.
#
# Packages: networkit 11.3, numpy 2, scipy. Nothing of gnnexp is used.
# Seen: what `wanted` says below. Right is [2.5, 7.0, 3.0] for the files, and no 1.0 in the last two lines.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'networkit==11.3' 'numpy>=2,<3' scipy

cat > "$place/weights.py" <<'PYTHON'
import re
from pathlib import Path

import networkit

graph = networkit.Graph(3, weighted=True, directed=True)
for tail, head, weight in ((0, 1, 2.5), (0, 1, 7.0), (1, 2, 3.0)):
    graph.addEdge(tail, head, weight)
print("graph:", [weight for _, _, weight in graph.iterEdgesWeights()])

networkit.graphio.GraphMLWriter().write(graph, "g.graphml")
written = re.findall(r'<data key="d1">(.*?)</data>', Path("g.graphml").read_text())
print("GraphML file:", [float(weight) for weight in written])
networkit.graphio.GEXFWriter().write(graph, "g.gexf")
written = re.findall(r'weight="(.*?)"', Path("g.gexf").read_text())
print("GEXF file:", [float(weight) for weight in written])

networkit.writeGraph(graph, "g.gml", networkit.Format.GML)
print("GML file:", re.findall("weight.*", Path("g.gml").read_text()))
again = networkit.readGraph("g.gml", networkit.Format.GML)
print("GML again:", [weight for _, _, weight in again.iterEdgesWeights()])

lines = ["graph [", "directed 1", "node [", "id 0", "]", "node [", "id 1", "]"]
lines += ["edge [", "source 0", "target 1", "weight 2.5", "]", "]"]
Path("other.gml").write_text("\n".join(lines) + "\n")
other = networkit.readGraph("other.gml", networkit.Format.GML)
print("GML of another tool:", [weight for _, _, weight in other.iterEdgesWeights()])
PYTHON

seen=$(cd "$place" && env/bin/python weights.py 2>&1) || true
wanted="graph: [2.5, 7.0, 3.0]
GraphML file: [2.5, 7.0, 3.0]
GEXF file: [2.5, 2.5, 3.0]
GML file: []
GML again: [1.0, 1.0]
GML of another tool: [1.0]"
printf '%s\n' "$seen"
[ "$seen" = "$wanted" ] || { echo "the behaviour has changed"; exit 1; }
