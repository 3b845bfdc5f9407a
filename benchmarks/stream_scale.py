"""SPRING on a stream of edges larger than memory: edges per second of every pass, and what the process took.

The edges have a synthetic shape (papers_like: 111 M vertices, 1.6 G directed edges). They are written to a file of
int32 pairs by destination, 8 bytes each. Then four passes read the file: degrees, clustering, merging, assignment.
`--scale 1` needs 14 GB of disk for the file, and another 14 GB while the file is made.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import keep

from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.datasets.generated.synthetic import RULES
from gnnexp.datasets.reading.edge_files import open_edges
from gnnexp.graph.storage.external import csc_buckets
from gnnexp.graph.stream import ArrayStream, EdgeChunk, EdgeStream
from gnnexp.kernels.graph.stream import expand_destinations
from gnnexp.measure.memory import host_peak_bytes, reset_host_peak
from gnnexp.partitioners.spring import SpringPartitioner

_PIECE = 1 << 22


class Timed(EdgeStream):
    """A stream that times its passes: reading apart from what is done with the edges."""

    def __init__(self, stream: EdgeStream) -> None:
        self.name, self._stream = stream.name, stream
        self.passes: list[dict[str, float]] = []

    @property
    def num_nodes(self) -> int:
        return self._stream.num_nodes

    @property
    def num_edges(self) -> int:
        return self._stream.num_edges

    def chunks(self) -> Iterator[EdgeChunk]:
        began, reading, asked = time.perf_counter(), 0.0, time.perf_counter()
        for chunk in self._stream.chunks():
            reading += time.perf_counter() - asked
            yield chunk
            asked = time.perf_counter()
        seconds = time.perf_counter() - began
        self.passes.append({"seconds": seconds, "reading_s": reading, "edges_per_s": self.num_edges / seconds})


def write_pairs(dataset: Dcsbm, path: Path) -> None:
    """All edges by destination."""
    with path.open("wb") as file:
        generator = dataset.generator()
        passes = generator.passes(generator.order())
        for bucket in csc_buckets(passes, dataset.sizes.num_nodes, RULES, dataset.buffer_bytes // 4)[1]:
            for start in range(0, bucket.indices.size, _PIECE):
                sources = bucket.indices[start : start + _PIECE]
                destinations = np.empty(sources.size, np.int32)
                expand_destinations(bucket.starts, start, destinations)
                file.write(np.stack([sources, destinations + bucket.first], axis=1).astype(np.int32).data)


def measure(path: Path, num_nodes: int, parts: int) -> dict[str, Any]:
    """One partitioning of the file."""
    SpringPartitioner().assign_stream(ArrayStream(np.zeros((2, 2), np.int32)), 1)  # compiles
    stream = Timed(open_edges(path, num_nodes))
    partitioner = SpringPartitioner(bound_sizes=False)
    before = resource.getrusage(resource.RUSAGE_SELF)
    reset_host_peak()
    start = time.perf_counter()
    owners = partitioner.assign_stream(stream, parts)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    sizes = np.bincount(owners.nodes.numpy(), minlength=parts)
    return {
        "vertices": num_nodes,
        "edges": stream.num_edges,
        "parts": parts,
        "seconds": seconds,
        "passes": stream.passes,
        "peak_rss_bytes": host_peak_bytes(),
        "bytes_per_vertex": host_peak_bytes() / num_nodes,
        "user_s": after.ru_utime - before.ru_utime,
        "balance_vertices": float(sizes.max() / sizes.mean()),
        **owners.facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--shape", default="papers_like")
    parser.add_argument("--parts", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/gnnexp-streams"))
    parser.add_argument("--name", default="stream_scale")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / f"{chosen.shape}-{chosen.scale:g}.bin"
    dataset = Dcsbm(shape=chosen.shape, scale=chosen.scale)
    num_nodes = dataset.sizes.num_nodes
    if not path.exists():
        write_pairs(dataset, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    found = measure(path, num_nodes, chosen.parts)
    print(found)
    print(keep(chosen.name, {"shape": chosen.shape, "scale": chosen.scale, **found}))


if __name__ == "__main__":
    main()
