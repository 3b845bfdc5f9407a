"""Restreaming: vertices to the parts of their in-neighbours, in k passes over a graph that may be mapped.

Sources: LDG (Stanton & Kliot, KDD 2012), Fennel (Tsourakakis et al., WSDM 2014), restreaming (Nishimura & Ugander, KDD
2013), and clusters by label propagation to start from (`multilevel`).
"""

from __future__ import annotations

import logging
import math
from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.partitioners.refine import PARTS_PER_WORD, count_pins, move_by_copies
from gnnexp.kernels.partitioners.restream import stream_vertices, unload
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.metis import fill_empty
from gnnexp.partitioners.metis_library import index_dtype, metis_version
from gnnexp.partitioners.multilevel import Caps, CoarseGraph, Coarsest, cluster_owners

log = logging.getLogger(__name__)

Order = Literal["falling", "rising", "stored", "random"]
_UNBOUNDED = np.iinfo(np.int64).max
# Edges cut less that are worth one copy less, in the passes over copies: geometric mean of replication_full over seven
# real graphs, 4, 8 and 16 parts, 3.061, 3.078 and 3.098 with 0.02, 0.1 and 0.3.
_TILT = 0.02
# Geometric mean of replication_full over the same: 3.07 after 3, 3.04 after 10. From clusters, with passes over copies
# afterwards, 2.68 without, 2.59 after 1, 2.57 after 3. With edges bounded to 1.05 of the mean 2.92 without, 3.22 after
# 1: vertices with many in-edges come first, and fill parts wherever their clusters were.
_PASSES_FROM_EMPTY = 3
# Passes over copies end where less than 1 % of the vertices move.
_SETTLED = 0.01
_CHOICES = {"start": ("clusters", "empty"), "score": ("fennel", "ldg"), "coarsest": ("metis", "stream"),
            "order": ("falling", "rising", "stored", "random")}


# Anonymous memory at its peak, per edge: 6.5 on 245,000 vertices and 12.4 M edges with planted communities, 15 on
# 169,000 and 2.3 M, where the graph of clusters is half as large.
BYTES_PER_EDGE = 16


class RestreamPartitioner(Partitioner):
    """LDG or Fennel restreamed, from clusters or from nothing, then moves that save copies.

    Known of a vertex are its in-neighbours. In a directed graph they are what a part must hold for it, but who needs
    the vertex itself is not seen, other than by its place in the rows of others: those with out-edges only are placed
    without regard to them until the passes over copies.

    Caps hold after every pass: parts are filled from empty, and a vertex goes only where it fits. If `edge_balance` is
    not held in the end, that is logged, and told by the fact `edges_over_cap`.

    Takes about 30 bytes per vertex, p rounded up to 8 more in passes over copies, and from clusters 12 to 30 bytes per
    edge of the graph of clusters.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        start: from `clusters` (size-constrained label propagation, contracted, split and refined) or `empty`.
        score: `fennel` or `ldg`, of the passes.
        passes: k over the graph, from the start on; `auto`: 3 from empty; from clusters 1, but none where edges are
            bounded.
        copies_passes: passes of moves afterwards, at most, that bring down the copies per vertex (`replication_full`)
            themselves.
        vertex_balance: vertices of a part over the mean, at most (a part takes V / p rounded up in any case).
        edge_balance: in-edges of a part over the mean, at most (a part takes E / p rounded up, and all in-edges of any
            vertex, in any case); None: as it comes, for 9 % fewer copies, with up to 5 times the mean in a part.
        gamma: exponent of what a part's size costs in Fennel's score.
        order: in which vertices come: by in-edges, most first (`falling`) or fewest first (`rising`), by ids (`stored`)
            or at `random`.
        coarsest: what splits the last level of clusters: `metis` (needs pymetis), or the best of 8 `stream`s.
        seed: of METIS's choices, of streams and of the random order.
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
        if problems := self._problems():
            raise ConfigError(problems)

    def _problems(self) -> list[Problem]:
        """All that is wrong with the options."""
        problems = [
            Problem(f"partitioner.{key}", getattr(self, key), f"must be one of {', '.join(allowed)}",
                    f"set partitioner.{key}={allowed[0]}")
            for key, allowed in _CHOICES.items() if getattr(self, key) not in allowed
        ]
        least = 1 if self.start == "empty" else 0
        for key, low, default in (("passes", least, "auto"), ("copies_passes", 0, 2), ("vertex_balance", 1, 1.05),
                                  ("edge_balance", 1, 1.2), ("gamma", 1, 1.5), ("seed", 0, 0)):
            value = getattr(self, key)
            if key == "passes" and isinstance(value, str):
                if value != "auto":
                    problems.append(Problem("partitioner.passes", value, f"must be auto, or {low} or more",
                                            "set partitioner.passes=auto"))
            elif value is not None and not (low <= value < math.inf):
                problems.append(Problem(f"partitioner.{key}", value, f"must be {low} or more",
                                        f"set partitioner.{key}={default}"))
        return problems

    @property
    def requires(self) -> tuple[str, ...]:
        """METIS comes with pymetis, and splits the last level of clusters."""
        return ("pymetis",) if (self.start, self.coarsest) == ("clusters", "metis") else ()

    @property
    def version(self) -> str:
        """METIS decides on the last level of clusters."""
        return f"2, metis {metis_version()}" if (self.start, self.coarsest) == ("clusters", "metis") else "2"

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by restreaming; no part is left empty."""
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
            log.warning("partitioner.edge_balance=%g cannot be held: one vertex has %d in-edges, %.2f times the mean "
                        "of %d parts", self.edge_balance, most, most * num_parts / E, num_parts)
        return Caps(vertices, max(edges, most))

    def _order(self, level: CoarseGraph) -> np.ndarray:
        """`[V]` in the type of ids."""
        if self.order == "stored":
            return np.arange(level.num_nodes, dtype=level.indices.dtype)
        if self.order == "random":
            drawn = permutation(stream(self.seed, Purpose.PARTITION, 0), level.num_nodes)
            return drawn.astype(level.indices.dtype)
        return level.order(falling=self.order == "falling")

    def _stream(self, level: CoarseGraph, num_parts: int, caps: Caps, order: np.ndarray, owners: np.ndarray) -> int:
        """All passes; how many vertices the last one moved."""
        # Fennel's own choice, m k^(gamma - 1) / n^gamma, for m undirected edges, of which there are two in-edges each.
        alpha = level.indices.size / 2 * num_parts ** (self.gamma - 1) / level.num_nodes**self.gamma
        masses, loads = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
        moved = 0
        for _ in range(self._num_passes()):
            moved = stream_vertices(
                level.indptr, level.indices, level.weights, level.masses, level.loads, order, owners, masses, loads,
                self.score == "fennel", alpha, self.gamma, caps.vertices, caps.edges,
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
            moved = move_by_copies(level.indptr, level.indices, order, owners, masses, loads, caps.vertices, caps.edges,
                                   pins, words, _TILT)
            if moved < _SETTLED * level.num_nodes:
                break


def _check_metis() -> None:
    """Before the work starts."""
    try:
        index_dtype()
    except ConfigError as error:
        (problem,) = error.problems
        fix = f"{problem.fix.split(', or')[0]}, or partitioner.coarsest=stream"
        raise ConfigError(Problem("partitioner.coarsest", "metis", problem.allowed, fix)) from None


def _hold(level: CoarseGraph, num_parts: int, caps: Caps, owners: np.ndarray) -> int:
    """Make `owners` hold the caps; the most in-edges by which a part still exceeds them."""
    masses, loads = level.totals(owners, num_parts)
    if masses.max() <= caps.vertices and loads.max() <= caps.edges:
        return 0
    over = int(unload(level.indptr, level.order(falling=True), owners, masses, loads, caps.vertices, caps.edges))
    if over:
        log.warning("partitioner.edge_balance is not held: a part has %d in-edges, %d were to be the most",
                    caps.edges + over, caps.edges)
    return over
