"""Quality of partitions on real graphs, by every definition that is in use, and what they took.

Replication is counted in three ways:

- `replication_full`: one home per vertex, with all its neighbours. In a vertex-cut the home is the part with most of
  the vertex's edges.
- `replication_artifact`: as the published artifact of SDT-GNN counts. The home is the part of the last
  streamed in-edge.
- `replication_cut`: as papers on vertex-cuts count.

A partition has collapsed if its largest part has more than twice the mean of the vertices, or, in a vertex-cut, of the
edges. It is marked, and never compared. Vertex partitioners do not all balance edges: see the balance of edges.

`--alpha` varies SPRING's volume cap instead, which the paper leaves open, and prints counts only.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any, Literal

from machine import keep

from gnnexp.config.compose import draft
from gnnexp.experiment.build import experiment_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.quality import quality
from gnnexp.graph.stream import StreamOrder
from gnnexp.partitioners.base import Partitioner
from gnnexp.partitioners.dbh import DbhPartitioner
from gnnexp.partitioners.greedy import GreedyPartitioner
from gnnexp.partitioners.hdrf import HdrfPartitioner
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.partitioners.restream import RestreamPartitioner
from gnnexp.partitioners.spring import SpringPartitioner
from gnnexp.partitioners.streaming import Home
from gnnexp.partitioners.two_ps_l import TwoPsLPartitioner
from gnnexp.preparation.artifacts import prepare_graph

GRAPHS = {
    "cora": ["dataset=planetoid", "dataset.name=cora"],
    "pubmed": ["dataset=planetoid", "dataset.name=pubmed", "dataset.missing_features=zeros"],
    "amazon-computers": ["dataset=graphdata_npz", "dataset.name=amazon-computers"],
    "coauthor-physics": ["dataset=graphdata_npz", "dataset.name=coauthor-physics"],
    "tolokers": ["dataset=heterophilous_npz"],
    "fb100-cornell5": ["dataset=fb100"],
    "ogbl-ddi": ["dataset=ogb", "dataset.name=ogbl-ddi"],
}
PARTS = (4, 8, 16)
ORDERS: tuple[StreamOrder, ...] = ("stored", "shuffled")
COLLAPSED = 2.0
KEPT = ("replication_full", "replication_artifact", "replication_cut", "edge_cut", "balance_vertices", "balance_edges")
Make = Callable[[StreamOrder, Home], Partitioner]
RULES: dict[str, Make] = {
    "spring": lambda order, home: SpringPartitioner(order=order),
    "hdrf": lambda order, home: HdrfPartitioner(order=order, home=home),
    "dbh": lambda order, home: DbhPartitioner(order=order, home=home),
    "greedy": lambda order, home: GreedyPartitioner(order=order, home=home),
    "two_ps_l": lambda order, home: TwoPsLPartitioner(order=order, home=home),
    # As SDT-GNN's published artifact sets it: smaller clusters, clustered twice.
    "two_ps_l, cap 0.1": lambda order, home: TwoPsLPartitioner(max_volume=0.1, passes=2, order=order, home=home),
}
SCORES: tuple[Literal["fennel", "ldg"], ...] = ("fennel", "ldg")
RIVALS = ("hdrf", "dbh", "greedy", "two_ps_l", "two_ps_l, cap 0.1")
ALPHAS, ALPHA = (0.05, 0.1, 0.2, 0.5, 1.0), 0.1
ALPHA_PARTS = (4, 16)


def load(name: str) -> Graph:
    """From the artifact cache."""
    composed = draft([*GRAPHS[name], "task=node_classification"], None).composed
    assert composed is not None
    return prepare_graph(experiment_of(composed.config).dataset, cache_root())[0]


def described(graph: Graph, partitioner: Partitioner, parts: int) -> dict[str, Any]:
    """Quality and cost of one partition."""
    made = partitioner.partition(graph, parts)
    found = quality(graph, made)
    row: dict[str, Any] = {name: round(found[name], 4) for name in KEPT if name in found}
    worst = max(row["balance_vertices"], row["balance_edges"] if made.edge_owner is not None else 1.0)
    return {**row, "seconds": round(made.seconds, 4), "collapsed": worst > COLLAPSED, **made.facts}


def rows(graphs: list[str]) -> Iterator[dict[str, Any]]:
    """Every graph, order, number of parts and rule."""
    for name in graphs:
        graph = load(name)
        for parts in PARTS:
            said = {"graph": name, "parts": parts}
            for rule, partitioner in (("metis", MetisPartitioner()), ("random", RandomPartitioner()), *restreams()):
                partitioner.partition(graph, parts)  # compiles
                yield {**said, "rule": rule, "order": "whole", **described(graph, partitioner, parts)}
            for order in ORDERS:
                for rule, make in RULES.items():
                    row = described(graph, make(order, "most"), parts)
                    if rule in RIVALS:
                        last = described(graph, make(order, "last"), parts)
                        row["replication_artifact"] = last["replication_artifact"]
                    yield {**said, "rule": rule, "order": order, **row}


def restreams() -> Iterator[tuple[str, Partitioner]]:
    """The variants of `restream` that are compared."""
    yield "restream", RestreamPartitioner()
    for bound in (1.1, None):
        name = "restream, edges unbounded" if bound is None else f"restream, edges {bound}"
        yield name, RestreamPartitioner(edge_balance=bound)
    for score in SCORES:
        name = f"restream from empty, {score}"
        yield name, RestreamPartitioner(start="empty", score=score, copies_passes=0, edge_balance=None)


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric means over graphs, orders and parts of SPRING's replication in units of each other rule's."""
    by = {(row["graph"], row["parts"], row["rule"], row["order"]): row for row in found}
    means: dict[str, dict[str, float]] = {}
    for rule in sorted({row["rule"] for row in found} - {"spring"}):
        for definition in ("replication_full", "replication_artifact", "balance_vertices", "balance_edges"):
            ratios = []
            for (graph, parts, name, order), row in by.items():
                if name != "spring":
                    continue
                other = by.get((graph, parts, rule, order)) or by[graph, parts, rule, "whole"]
                if not row["collapsed"] and not other["collapsed"]:
                    ratios.append(row[definition] / other[definition])
            if ratios:
                means.setdefault(rule, {})[definition] = round(statistics.geometric_mean(ratios), 4)
                means[rule]["compared"] = len(ratios)
    return means


def alpha_rows(graphs: list[str]) -> Iterator[dict[str, Any]]:
    """SPRING of every volume cap, sizes of clusters bounded or not, in stored order."""
    for name in graphs:
        graph = load(name)
        for parts, bound, alpha in itertools.product(ALPHA_PARTS, (False, True), ALPHAS):
            row = described(graph, SpringPartitioner(alpha=alpha, bound_sizes=bound), parts)
            del row["seconds"]
            yield {"graph": name, "parts": parts, "bound_sizes": bound, "alpha": alpha, **row}


def alpha_summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over graphs: geometric means in units of alpha = 0.1 of what has not collapsed, and the balance of all."""
    by = {(row["graph"], row["parts"], row["bound_sizes"], row["alpha"]): row for row in found}
    means = []
    for parts, bound, alpha in itertools.product(ALPHA_PARTS, (False, True), ALPHAS):
        these = [row for row in found if (row["parts"], row["bound_sizes"], row["alpha"]) == (parts, bound, alpha)]
        pairs = [(row, by[row["graph"], parts, bound, ALPHA]) for row in these]
        compared = [pair for pair in pairs if not any(row["collapsed"] for row in pair)]
        ratios = {
            name: round(statistics.geometric_mean(row[name] / usual[name] for row, usual in compared), 4)
            for name in ("replication_full", "balance_edges")
        }
        means.append(
            {
                "parts": parts,
                "bound_sizes": bound,
                "alpha": alpha,
                "compared": len(compared),
                **ratios,
                "balance_vertices_mean": round(statistics.geometric_mean(row["balance_vertices"] for row in these), 4),
                "balance_vertices_worst": max(row["balance_vertices"] for row in these),
            }
        )
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=list(GRAPHS))
    parser.add_argument("--alpha", action="store_true")
    parser.add_argument("--name", help="of the file of results")
    chosen = parser.parse_args()
    found = []
    for row in (alpha_rows if chosen.alpha else rows)(chosen.graphs):
        print(row, flush=True)
        found.append(row)
    summed: dict[str, Any]
    if chosen.alpha:
        name, summed = "spring_alpha", {"in_units_of_alpha_0.1": alpha_summary(found)}
    else:
        name, summed = "partitioning", {"spring_in_units_of": summary(found)}
    print(summed)
    print(keep(chosen.name or name, {**summed, "rows": found}))


if __name__ == "__main__":
    main()
