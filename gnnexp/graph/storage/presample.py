"""How often vertices and edges occur in sampled batches: the weights of GSplit's partitioning (section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.arrays import fix, read_folder
from gnnexp.graph.storage.writer import ArrayWriter

KIND, SCHEMA = "presample", 1


@dataclass(frozen=True, eq=False)
class Presample:
    """Counts over some epochs of the training sampler.

    Attributes:
        destinations: `[V]` int64, how often each vertex was a destination, over all hops.
        inputs: `[V]` int64, in how many batches each vertex's features were read.
        edges: `[E]` int32, how often each edge was sampled. If the sampler does not distinguish parallel edges, the
            first of them counts for all.
        epochs: number of epochs.
        seconds: wall time.
        convergence: relative L1 change of the mean weights of vertices and of edges, after each epoch from the second.
        hops: `[L, V]` int64, `destinations` by hop, target hop first; None: they were not counted apart.
    """

    destinations: Tensor
    inputs: Tensor
    edges: Tensor
    epochs: int
    seconds: float
    convergence: Sequence[Mapping[str, float]]
    hops: Tensor | None = None

    def save(self, folder: Path) -> None:
        """Write the counts to `folder`, atomically."""
        with ArrayWriter(folder) as writer:
            for name in ("destinations", "inputs", "edges"):
                writer.put(name, getattr(self, name))
            if self.hops is not None:
                writer.put("hops", self.hops)
            writer.finish(
                {
                    "kind": KIND,
                    "schema": SCHEMA,
                    "epochs": self.epochs,
                    "seconds": self.seconds,
                    "convergence": [dict(line) for line in self.convergence],
                }
            )


def open_presample(folder: Path, graph: Graph) -> Presample:
    """The counts stored in `folder`, memory-mapped.

    Raises:
        DataError: the counts are damaged, or belong to another graph.
    """
    stored = read_folder(folder, KIND, SCHEMA)
    meta: Mapping[str, Any] = stored.meta
    vertices, edges = ("<i8", (graph.num_nodes,)), ("<i4", (graph.num_edges,))
    shapes = {name: (spec.dtype, spec.shape) for name, spec in stored.specs.items()}
    wanted: dict[str, Any] = {"destinations": vertices, "inputs": vertices, "edges": edges}
    if "hops" in shapes:
        wanted["hops"] = ("<i8", (shapes["hops"][1][0], graph.num_nodes))
    wrong = shapes != wanted
    kept = meta.get("epochs"), meta.get("seconds"), meta.get("convergence")
    if wrong or not (isinstance(kept[0], int) and isinstance(kept[1], int | float) and isinstance(kept[2], list)):
        raise DataError(
            Problem(
                str(folder),
                str(shapes)[:80],
                f"must be counts of a graph with {graph.num_nodes} vertices and {graph.num_edges} edges",
                fix(folder),
            )
        )
    arrays = stored.tensors(verify="sizes")
    return Presample(**arrays, epochs=meta["epochs"], seconds=float(meta["seconds"]), convergence=meta["convergence"])
