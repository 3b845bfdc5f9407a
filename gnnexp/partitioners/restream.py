"""Restreaming: vertices go to the parts of their in-neighbours, in k passes over a graph that may be memory-mapped.

Sources: LDG (Stanton & Kliot, KDD 2012), Fennel (Tsourakakis et al., WSDM 2014), restreaming (Nishimura & Ugander, KDD
2013). The start may be clusters from label propagation (`multilevel`).
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.partitioners.refine import PARTS_PER_WORD, count_pins, move_by_copies
from gnnexp.kernels.partitioners.restream import stream_vertices, unload
from gnnexp.partitioners.base import Owners, Partitioner, too_small_problems
from gnnexp.partitioners.metis import fill_empty
from gnnexp.partitioners.metis_library import metis_dtype, metis_version
from gnnexp.partitioners.multilevel import Caps, CoarseGraph, Coarsest, cluster_owners

log = logging.getLogger(__name__)

Order = Literal["falling", "rising", "stored", "random"]
_UNBOUNDED = np.iinfo(np.int64).max
# Value of one cut edge, in copies, in the passes over copies. Geometric mean of replication_full over seven real graphs
# with 4, 8 and 16 parts: 3.061, 3.078 and 3.098 with 0.02, 0.1 and 0.3.
_TILT = 0.02
# The same mean is 3.07 after 3 passes from empty, 3.04 after 10. From clusters, with passes over copies afterwards, it
# is 2.68 without a pass, 2.59 after 1, 2.57 after 3. From clusters, with edges limited to 1.05 times the mean, it is
# 2.92 without a pass, 3.22 after 1: vertices with many in-edges come first, and fill parts of other clusters too.
_PASSES_FROM_EMPTY = 3
# Passes over copies end when less than 1 % of the vertices move.
_SETTLED = 0.01
_CHOICES = {
    "start": ("clusters", "empty"),
    "score": ("fennel", "ldg"),
    "coarsest": ("metis", "stream"),
    "order": ("falling", "rising", "stored", "random"),
}


# Peak of anonymous memory per edge. Measured: 6.5 bytes on 245,000 vertices and 12.4 M edges with planted communities;
# 15 bytes on 169,000 vertices and 2.3 M edges, where the graph of clusters is half as large as the graph.
BYTES_PER_EDGE = 16


class RestreamPartitioner(Partitioner):
    """Restream by LDG or Fennel, from clusters or from empty parts; then move vertices to save copies.

    The score of a vertex depends on its in-neighbours. In a directed graph these are the vertices that its part must
    hold. The out-neighbours, which need the vertex itself, have no influence on its score. So vertices with out-edges
    only are placed without regard to their neighbours until the passes over copies.

    The limits hold after every pass, because parts are filled from empty, and a vertex goes only where it fits. If
    `edge_balance` does not hold in the end, a warning is logged, and the fact `edges_over_cap` is above 0.

    Takes about 30 bytes per vertex. Passes over copies take p more, rounded up to a multiple of 8. A start from
    clusters takes 12 to 30 bytes per edge of the graph of clusters.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        start: start from `clusters` (size-constrained label propagation, contracted, split and refined) or `empty`.
        score: score of the passes, `fennel` or `ldg`.
        passes: number k of passes over the graph after the start. `auto` means 3 from empty; from clusters 1, or 0 if
            `edge_balance` is set.
        copies_passes: most passes of moves afterwards, which directly reduce the copies per vertex
            (`replication_full`).
        vertex_balance: most vertices of a part over the mean; a part always has room for V / p vertices, rounded up.
        edge_balance: most in-edges of a part over the mean; a part always has room for E / p in-edges, rounded up, and
            for all in-edges of any vertex. None means no limit: 9 % fewer copies, but up to 5 times the mean in a part.
        gamma: exponent of the cost of a part's size in Fennel's score.
        order: order in which vertices come: by in-edges, most first (`falling`) or fewest first (`rising`), by ids
            (`stored`) or at `random`.
        coarsest: method that splits the last level of clusters: `metis` (needs pymetis), or the best of 8 `stream`s.
        seed: seed of METIS's choices, of the streams and of the random order.
    """

    bytes_per_edge = BYTES_PER_EDGE

    def __init__(
        self,
        num_parts: int | Literal["auto"] = "auto",
        start: Literal["clusters", "empty"] = "clusters",
        score: Literal["fennel", "ldg"] = "fennel",
        passes: int | Literal["auto"] = "auto",
        copies_passes: int = 2,
        vertex_balance: float = 1.05,
        edge_balance: float | None = 1.2,
        gamma: float = 1.5,
        order: Order = "falling",
        coarsest: Coarsest = "metis",
        seed: int = 0,
    ) -> None:
        self.num_parts = num_parts
        self.start, self.score, self.passes, self.copies_passes = start, score, passes, copies_passes
        self.vertex_balance, self.edge_balance, self.gamma = vertex_balance, edge_balance, gamma
        self.order, self.coarsest, self.seed = order, coarsest, seed
        ConfigError.raise_all(self._problems())

    def _problems(self) -> list[Problem]:
        """Problems of the options."""
        problems = [
            Problem(
                f"partitioner.{key}",
                getattr(self, key),
                f"must be one of {', '.join(allowed)}",
                f"set partitioner.{key}={allowed[0]}",
            )
            for key, allowed in _CHOICES.items()
            if getattr(self, key) not in allowed
        ]
        least = 1 if self.start == "empty" else 0
        numbers = [
            (key, getattr(self, key), low, default)
            for key, low, default in (
                ("passes", least, "auto"),
                ("copies_passes", 0, 2),
                ("vertex_balance", 1, 1.05),
                ("edge_balance", 1, 1.2),
                ("gamma", 1, 1.5),
                ("seed", 0, 0),
            )
        ]
        passes = numbers[0][1]
        if isinstance(passes, str) and passes != "auto":
            problems.append(
                Problem(
                    "partitioner.passes", passes, f"must be auto, or {least} or more", "set partitioner.passes=auto"
                )
            )
        return problems + too_small_problems(number for number in numbers if not isinstance(number[1], str | None))

    @property
    def requires(self) -> tuple[str, ...]:
        """pymetis, if METIS splits the last level of clusters."""
        return ("pymetis",) if (self.start, self.coarsest) == ("clusters", "metis") else ()

    @property
    def library(self) -> str:
        """METIS's version if METIS splits the last level of clusters."""
        return f"metis {metis_version()}" if (self.start, self.coarsest) == ("clusters", "metis") else ""

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by restreaming; no part is empty."""
        if (self.start, self.coarsest) == ("clusters", "metis"):
            _check_metis()
        dtype = torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype
        if num_parts == 1:
            return Owners(torch.zeros(graph.num_nodes, dtype=owner_dtype(1)))
        caps = self._caps(graph, num_parts)
        level = CoarseGraph.of_graph(graph.indptr.numpy(), graph.indices.numpy())
        facts: dict[str, float] = {}
        if self.start == "empty":
            owners = np.full(graph.num_nodes, -1, dtype)
        else:
            owners, facts = cluster_owners(level, num_parts, caps, self.coarsest, self.seed, dtype)
        order = self._order(level)
        if self._num_passes():
            facts["moved_last_pass"] = self._stream(level, num_parts, caps, order, owners) / graph.num_nodes
        if self.copies_passes:
            self._save_copies(level, num_parts, caps, order, owners)
        facts["edges_over_cap"] = float(_hold(level, num_parts, caps, owners))
        fill_empty(owners, num_parts)
        return Owners(torch.from_numpy(owners), None, facts)

    def _num_passes(self) -> int:
        if self.passes != "auto":
            return self.passes
        return _PASSES_FROM_EMPTY if self.start == "empty" else int(self.edge_balance is None)

    def _caps(self, graph: Graph, num_parts: int) -> Caps:
        V, E = graph.num_nodes, graph.num_edges
        vertices = max(-(-V // num_parts), int(self.vertex_balance * V / num_parts))
        if self.edge_balance is None:
            return Caps(vertices, int(_UNBOUNDED))
        edges, most = max(-(-E // num_parts), int(self.edge_balance * E / num_parts)), int(graph.in_degree.max())
        if most > edges:
            log.warning(
                "partitioner.edge_balance=%g cannot be held: one vertex has %d in-edges, %.2f times the mean "
                "of %d parts",
                self.edge_balance,
                most,
                most * num_parts / E,
                num_parts,
            )
        return Caps(vertices, max(edges, most))

    def _order(self, level: CoarseGraph) -> np.ndarray:
        """The order `[V]` in which vertices come, in the dtype of `indices`."""
        if self.order == "stored":
            return np.arange(level.num_nodes, dtype=level.indices.dtype)
        if self.order == "random":
            drawn = permutation(stream(self.seed, Purpose.PARTITION, 0), level.num_nodes)
            return drawn.astype(level.indices.dtype)
        return level.order(falling=self.order == "falling")

    def _stream(self, level: CoarseGraph, num_parts: int, caps: Caps, order: np.ndarray, owners: np.ndarray) -> int:
        """Run all passes; returns how many vertices the last pass has moved."""
        # Fennel's choice, m k^(gamma - 1) / n^gamma, for m undirected edges; each of them counts as two in-edges here.
        alpha = level.indices.size / 2 * num_parts ** (self.gamma - 1) / level.num_nodes**self.gamma
        masses, loads = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
        moved = 0
        for _ in range(self._num_passes()):
            moved = stream_vertices(
                level.indptr,
                level.indices,
                level.weights,
                level.masses,
                level.loads,
                order,
                owners,
                masses,
                loads,
                self.score == "fennel",
                alpha,
                self.gamma,
                caps.vertices,
                caps.edges,
            )
        return int(moved)

    def _save_copies(
        self, level: CoarseGraph, num_parts: int, caps: Caps, order: np.ndarray, owners: np.ndarray
    ) -> None:
        num_words = -(-num_parts // PARTS_PER_WORD)
        words = np.zeros(level.num_nodes * num_words, np.uint64)
        pins = words.view(np.uint8)
        count_pins(level.indptr, level.indices, owners, num_words * PARTS_PER_WORD, pins)
        masses, loads = level.totals(owners, num_parts)
        for _ in range(self.copies_passes):
            moved = move_by_copies(
                level.indptr, level.indices, order, owners, masses, loads, caps.vertices, caps.edges, pins, words, _TILT
            )
            if moved < _SETTLED * level.num_nodes:
                break


def _check_metis() -> None:
    """Raise ConfigError before the work starts if METIS is not available."""
    try:
        metis_dtype()
    except ConfigError as error:
        (problem,) = error.problems
        fix = f"{problem.fix.split(', or')[0]}, or partitioner.coarsest=stream"
        raise ConfigError(Problem("partitioner.coarsest", "metis", problem.allowed, fix)) from None


def _hold(level: CoarseGraph, num_parts: int, caps: Caps, owners: np.ndarray) -> int:
    """Change `owners` to respect `caps`; returns the largest number of in-edges by which a part still exceeds them."""
    masses, loads = level.totals(owners, num_parts)
    if masses.max() <= caps.vertices and loads.max() <= caps.edges:
        return 0
    over = int(unload(level.indptr, level.order(falling=True), owners, masses, loads, caps.vertices, caps.edges))
    if over:
        log.warning(
            "partitioner.edge_balance is not held: a part has %d in-edges, at most %d are allowed",
            caps.edges + over,
            caps.edges,
        )
    return over
