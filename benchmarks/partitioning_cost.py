"""What partitioners cost: seconds, memory, edges per second of every pass, and what the cost buys in copies.

Every measurement has its own process, and therefore its own peak of memory. Rounds are interleaved. Kernels are
compiled, and the edges are in the page cache, before a measurement starts. Streaming partitioners read a file of int32
pairs by destination. METIS and restream read the mapped CSC, whose pages count in the resident set. So the anonymous
part of the resident set is printed, too.

2PS-L has passes for degrees and clustering, and two that place edges. In a later pass vertex-cuts choose homes for
vertices; that pass is ours. So times are compared without homes: no rival is charged for what its paper does not ask.
An edge rate is that of one pass over all edges, reading included; 2PS-L's is that of its slowest pass.
`--scale 1` (2.4 M vertices, 124 M directed edges) takes METIS 14 GB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
from machine import keep
from stream_scale import Timed

from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.datasets.reading.edge_files import open_edges
from gnnexp.files.cache import cache_root
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.quality import quality
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.stream import GraphStream
from gnnexp.measure.memory import host_peak_bytes, reset_host_peak
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.dbh import DbhPartitioner
from gnnexp.partitioners.hdrf import HdrfPartitioner
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.restream import RestreamPartitioner
from gnnexp.partitioners.spring import SpringPartitioner
from gnnexp.partitioners.streaming import StreamPartitioner
from gnnexp.partitioners.two_ps_l import TwoPsLPartitioner
from gnnexp.preparation.artifacts import prepare_graph

RULES: dict[str, Partitioner] = {
    "spring": SpringPartitioner(),
    "two_ps_l": TwoPsLPartitioner(),
    "hdrf": HdrfPartitioner(),
    "dbh": DbhPartitioner(),
    "restream": RestreamPartitioner(),
    "metis": MetisPartitioner(),
}
PASSES = {
    "spring": ("degrees", "cluster"),
    "two_ps_l": ("degrees", "cluster", "place_within", "place_between", "homes"),
    "hdrf": ("place", "homes"),
    "dbh": ("degrees", "place", "homes"),
}
KEPT = ("replication_full", "replication_cut", "edge_cut", "balance_vertices", "balance_edges")
_EVERY_S = 0.01


class AnonymousPeak:
    """The largest anonymous resident set while it is entered, looked up a hundred times a second."""

    def __init__(self) -> None:
        self.most, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            self.most = max(self.most, anonymous_bytes())


def anonymous_bytes() -> int:
    """Of the resident set."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def measure(rule: str, graph: Path, pairs: Path, parts: int) -> dict[str, Any]:
    """One partitioning, in a process that does nothing else before."""
    partitioner, opened = RULES[rule], open_graph(graph)
    partitioner.partition(_small(), 2)  # compiles
    stream = Timed(open_edges(pairs, opened.num_nodes))
    resident, anonymous = psutil.Process().memory_info().rss, anonymous_bytes()
    reset_host_peak()
    with AnonymousPeak() as peak:
        start = time.perf_counter()
        owners = _assign(partitioner, opened, stream, parts)
        seconds = time.perf_counter() - start
    row: dict[str, Any] = {
        "seconds": seconds,
        "peak_bytes": host_peak_bytes() - resident,
        "peak_anonymous_bytes": peak.most - anonymous,
    }
    row["passes"] = dict(zip(PASSES.get(rule, ()), stream.passes, strict=True))
    row["seconds_without_homes"] = seconds - row["passes"].get("homes", {"seconds": 0.0})["seconds"]
    found = quality(opened, Partition(owners.nodes, parts, owners.edges))
    return {**row, **{name: round(found[name], 4) for name in KEPT}, **owners.facts}


def _assign(partitioner: Partitioner, graph: Graph, stream: Timed, parts: int) -> Owners:
    if isinstance(partitioner, StreamPartitioner):
        return partitioner.assign_stream(stream, parts)
    return partitioner.assign(graph, parts)


def _small() -> Graph:
    """A ring."""
    ends = np.arange(64)
    arrays = build_graph(ends, np.roll(ends, 1), 64)
    return Graph(arrays.indptr, arrays.indices)


def prepared(scale: float) -> tuple[Path, Path]:
    """The graph's folder, and the file of its edges, both read once."""
    graph, folder = prepare_graph(Dcsbm(shape="products_like", scale=scale, num_features=4), cache_root())
    pairs = folder.with_suffix(".bin")
    if not pairs.exists():
        with pairs.with_suffix(".part").open("wb") as file:
            for chunk in GraphStream(graph).chunks():
                np.stack([chunk.sources, chunk.destinations], axis=1).tofile(file)
        pairs.with_suffix(".part").rename(pairs)
    for path in (pairs, *folder.glob("ind*.npy")):
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
    return folder, pairs


def measured_apart(rule: str, graph: Path, pairs: Path, parts: int) -> dict[str, Any]:
    """By a child."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", rule, str(graph), str(pairs), str(parts)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the rounds; copies and balance are the same in all."""
    timed = ("seconds", "seconds_without_homes", "peak_bytes", "peak_anonymous_bytes")
    found: dict[str, Any] = {name: statistics.median(row[name] for row in rows) for name in timed}
    found["edges_per_s"] = {
        name: statistics.median(row["passes"][name]["edges_per_s"] for row in rows) for name in rows[0]["passes"]
    }
    return {**found, **{name: rows[0][name] for name in KEPT}, "rounds": len(rows)}


def compared(by: dict[str, dict[str, Any]]) -> dict[str, float]:
    """What is wanted: at most 0.1, at least 1.5, at least 15 M; a tenth of METIS."""
    spring, two_ps_l, metis, restream = (by[name] for name in ("spring", "two_ps_l", "metis", "restream"))
    return {
        "spring_memory_of_metis": spring["peak_bytes"] / metis["peak_bytes"],
        "two_ps_l_time_of_spring": two_ps_l["seconds_without_homes"] / spring["seconds"],
        "two_ps_l_edges_per_s": min(rate for name, rate in two_ps_l["edges_per_s"].items() if name != "homes"),
        "restream_time_of_metis": restream["seconds"] / metis["seconds"],
        "restream_memory_of_metis": restream["peak_bytes"] / metis["peak_bytes"],
        "restream_anonymous_memory_of_metis": restream["peak_anonymous_bytes"] / metis["peak_anonymous_bytes"],
        "restream_copies_of_metis": restream["replication_full"] / metis["replication_full"],
    }


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.3)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=2, help="of METIS and restream")
    parser.add_argument("--name", default="partitioning_cost")
    chosen = parser.parse_args()
    graph, pairs = prepared(chosen.scale)
    found: dict[str, list[dict[str, Any]]] = {rule: [] for rule in RULES}
    for turn in range(chosen.rounds):
        for rule, rows in found.items():
            if rule in PASSES or turn < chosen.slow_rounds:
                rows.append(measured_apart(rule, graph, pairs, chosen.parts))
                print(turn, rule, {name: rows[-1][name] for name in ("seconds", "peak_bytes")}, flush=True)
    by, opened = {rule: medians(rows) for rule, rows in found.items()}, open_graph(graph)
    result = {
        "scale": chosen.scale,
        "parts": chosen.parts,
        "vertices": opened.num_nodes,
        "edges": opened.num_edges,
        "compared": compared(by),
        "rules": by,
        "rounds": found,
    }
    print(json.dumps(result["compared"], indent=1))
    print(keep(chosen.name, result))


if __name__ == "__main__":
    main()
