"""Vertex parallelism: full-graph training, every rank computes the vertices that it owns (NeutronTP, section 2.2).

What a destination needs of other ranks' vertices is managed by `dependency`:

    communicate   their rows are fetched before every layer, gradients go back        (NeutronStar's DepComm)
    cache         the L-hop halo is held and computed here as well                    (NeutronStar's DepCache)
    hybrid        per vertex and layer whichever is cheaper                           (NeutronStar)
    stale         as communicate, but fetched rows are used for several epochs        (Sancus)

Over a vertex-cut (DistGNN) edges have owners of their own: sums are taken where they are, see `vertices/cut_layers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.comm.broadcast import WholeParts
from gnnexp.comm.shuffle import Halo
from gnnexp.comm.stale import StaleRows
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import build
from gnnexp.experiment.needs import Need, Resident
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import block_degrees, num_ranks, one_part_per_rank
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.chunks.local_chunks import LocalChunks, check_chunks
from gnnexp.paradigms.loops.full_graph import Whole, WholeInMemory
from gnnexp.paradigms.vertices.cut_layers import CutLayers
from gnnexp.paradigms.vertices.hybrid_dependency import Costs, cheapest
from gnnexp.paradigms.vertices.options import Dependency, Exchange, VertexOptions
from gnnexp.placement.cut_graph import cut_graph
from gnnexp.placement.halo import Level, everyone, levels, shuffle_index


class VertexParallel(WholeInMemory):
    """Full-graph training by vertices; over an edge-cut a destination has all its in-edges here, so any model runs.

    Args:
        dependency: how foreign rows come, see above.
        exchange: `halo`, only the rows that are needed; `broadcast`, whole parts to all ranks (Sancus).
        cache_input_halo: hold the features of layer 1's halo instead of fetching them in every epoch.
        staleness: of `stale`: epochs that a fetched row may be old; 0 is exact.
        delay: over a vertex-cut: epochs by which other ranks' rows and sums are late (DistGNN's cd-r); 0 is exact.
        chunks, device_memory: ranges of destinations that a layer is worked on one after another, see
            `chunks/chunking.py`.
    """

    needs_partition = True
    takes_vertex_cut = True

    def __init__(
        self, dependency: Dependency = "communicate", exchange: Exchange = "halo", cache_input_halo: bool = False,
        staleness: int = 0, delay: int = 0, chunks: int | None = 1, device_memory: int | None = None,
    ) -> None:
        self.options = VertexOptions(
            dependency, exchange, cache_input_halo, staleness, delay, Chunking(chunks, device_memory)
        )
        if problems := self.options.problems():
            raise ConfigError(problems)
        self.approximates = self.options.approximates
        self.exact = not self.approximates

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """A part per rank, and options that fit the other groups."""
        problems = [*super().check(config), *one_part_per_rank(config), *block_degrees(config, "vertex_parallel")]
        return [*problems, *self.options.check(config)]

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """A budget for the largest vertex."""
        return check_chunks(config, graph, self.options.chunking)

    def resident_share(self, config: Mapping[str, Any], graph: Graph) -> Resident:
        """A part and its halo, no more vertices than edges lead out of it; with cached vertices, the graph."""
        ranks, layers = num_ranks(config), build(config["model"], Model).num_layers
        own, edges = -(-graph.num_nodes // ranks), -(-graph.num_edges // ranks)
        if self.options.dependency in ("cache", "hybrid"):
            return Resident(edges + (layers - 1) * graph.num_edges, graph.num_nodes, graph.num_nodes)
        rows = graph.num_nodes if self.options.exchange == "broadcast" else min(graph.num_nodes, own + edges)
        return Resident(edges, rows, rows)

    def checkpoint_bytes(self, config: Mapping[str, Any], graph: Graph) -> int:
        """Old rows of other ranks, or rows, sums and gradients that are late."""
        return self.options.kept_bytes(config, graph)

    def needs(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> Iterable[Need]:
        """The same rows are in a rank's memory."""
        kept = -(-self.options.kept_bytes(config, graph) // num_ranks(config))
        rows = Need("rows of other ranks, kept for later epochs", "device", kept)
        return (*super().needs(config, graph, parts), rows)

    # --- setup -----------------------------------------------------------------------------------------------------
    def setup(self, job: Job) -> None:
        """Build the rank's graph of every layer, and tell the owners what it will fetch."""
        super().setup(job)
        assert job.shard.partition is not None
        self._own = job.shard.partition.vertices_of(job.shard.part)
        self.cut: CutLayers | None = None
        self.levels: tuple[Level, ...] = ()
        self.stale: tuple[StaleRows | None, ...] = ()
        self.local: LocalChunks | None = None
        if job.shard.partition.edge_owner is not None:
            graph = cut_graph(job.shard)
            self.cut = CutLayers(job, graph, self.options.delay, self.options.cache_input_halo)
            self._blocks = (graph.block.to(job.device),) * job.model.num_layers
            self._crossing = [graph.cross_edges] * job.model.num_layers
            held = graph.block.num_src if self.options.cache_input_halo else self._own.numel()
            self._inputs = graph.block.src_ids[:held]
            return
        self.levels = self._levels(job)
        moved = {level: level.block.to(job.device) for level in set(self.levels)}
        self._blocks = tuple(moved[level] for level in self.levels)
        self._crossing = [int((level.block.sources >= level.num_local).sum()) for level in self.levels]
        if self.options.chunking != Chunking(1, None):
            self.local = LocalChunks(job, [level.block for level in self.levels], self.options.chunking)
        self.stale = self._exchanges(job)
        self._inputs = self.levels[0].block.src_ids[: self.levels[0].num_local]

    def _levels(self, job: Job) -> tuple[Level, ...]:
        found = levels(job.shard, self._own, job.model.num_layers, self._cached(job))
        if self.options.exchange == "halo":
            return found
        held = found[:1] if self.options.cache_input_halo else ()
        widened = {level: everyone(level, job.shard) for level in set(found[len(held):])}
        return (*held, *(widened[level] for level in found[len(held):]))

    def _cached(self, job: Job) -> Callable[[int, Tensor], Tensor]:
        """Which foreign inputs of a layer are here without an exchange."""
        if self.options.dependency == "hybrid":
            dims = [job.model.in_dim, *(int(getattr(layer, "out_dim", 0)) for layer in job.model.layers)]
            costs = Costs.of(job.run.hardware, torch.empty(0, dtype=job.dtype).element_size())
            return cheapest(job.shard, self._own, dims, costs)
        everything = self.options.dependency == "cache"
        return lambda layer, ids: torch.full(
            ids.shape, everything or (layer == 0 and self.options.cache_input_halo), dtype=torch.bool
        )

    def _exchanges(self, job: Job) -> tuple[StaleRows | None, ...]:
        """Per layer, how foreign rows come; None where no rank fetches any."""
        told: Any = job.comm.gather_objects(
            [(sum(level.fetched), index > 0 and level is self.levels[index - 1])
             for index, level in enumerate(self.levels)]
        )
        halo: Halo | None = None
        found: list[StaleRows | None] = []
        for level, of_ranks in zip(self.levels, zip(*told, strict=True), strict=True):
            if not any(fetches for fetches, _ in of_ranks):
                halo = None
            elif halo is None or not all(alike for _, alike in of_ranks):
                halo = self._halo(job, level)  # collective: made anew where it is new to any rank
            found.append(None if halo is None else StaleRows(halo, self.options.staleness))
        return tuple(found)

    def _halo(self, job: Job, level: Level) -> Halo:
        if self.options.exchange == "halo":
            index = shuffle_index(level.wanted, level.fetched, level.num_local, self._own, job.batch_comm)
            return index.to(job.device)
        lengths: Any = job.comm.gather_objects(level.num_local)
        return WholeParts(lengths, job.comm.rank)

    # --- the iteration ---------------------------------------------------------------------------------------------
    @property
    def own(self) -> Tensor:
        """What the part owns."""
        return self._own

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Own vertices and their in-edges; with cached vertices, theirs too."""
        return self._blocks

    @property
    def resident(self) -> tuple[Block, ...]:
        """Of layers that are not cut into chunks."""
        if self.local is None:
            return self._blocks
        return tuple(block for block, chunks in zip(self._blocks, self.local.chunks, strict=True) if len(chunks) == 1)

    def load(self) -> Rows:
        """Rows of the inputs that are here without an exchange."""
        return self.job.store.read(self._inputs)

    def outputs(self, whole: Whole) -> Tensor:
        """Before a layer, foreign rows are fetched (autograd runs the transposed exchange)."""
        job, epoch = self.job, whole.batch.key.epoch
        if self.cut is not None:
            return self.cut.run(whole)

        def exchange(layer: int, rows: Rows) -> Rows:
            stale = self.stale[layer]
            return rows if stale is None else stale.gather(rows, epoch, job.comm, _tag(layer))

        preactivate = None if self.local is None else self.local.preactivate
        return job.model(whole.batch, whole.features, exchange, preactivate=preactivate)  # type: ignore[no-any-return]

    def forget_batches(self) -> None:
        """Nothing has been fetched either."""
        super().forget_batches()
        for stale in self._stale_rows():
            stale.forget()
        for place in () if self.cut is None else self.cut.delayed():
            place.forget()

    # --- counts and state ------------------------------------------------------------------------------------------
    def cross_edges(self, ready: Whole) -> Sequence[int]:
        """Edges from a fetched vertex; over a vertex-cut, edges with an end of another rank."""
        return self._crossing

    def redundant_edges(self) -> int:
        """Over a vertex-cut each edge is one rank's."""
        return 0 if self.cut is not None else super().redundant_edges()

    def end_epoch(self) -> dict[str, int]:
        """Rows fetched and cached per exchange, and what was not sent because old rows did."""
        counts = super().end_epoch()
        own = self._own.numel()
        if self.cut is not None:
            gathers = len(self._blocks) - self.options.cache_input_halo
            counts["halo_fetched"] = (gathers * self.cut.sources.num_foreign
                                      + len(self._blocks) * self.cut.destinations.num_foreign)
            return counts
        counts["halo_fetched"] = sum(sum(level.fetched) for level in self.levels)
        counts["halo_cached"] = sum(level.num_local - own for level in self.levels)
        if self.options.dependency == "stale":
            counts["comm/bytes_skipped"] = sum(stale.skipped_bytes for stale in self._stale_rows())
            for stale in self._stale_rows():
                stale.skipped_bytes = 0
        return counts

    def state_dict(self) -> dict[str, Any]:
        """Old rows, layer by layer, or what is late."""
        if self.cut is not None:
            return {"late": self.cut.state()} if self.options.delay else {}
        if not self.options.staleness:
            return {}
        return {"stale": [stale.state() for stale in self._stale_rows()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        if self.cut is not None:
            self.cut.restore(state.get("late", []))
            return
        for stale, kept in zip(self._stale_rows(), state.get("stale", []), strict=bool(state)):
            stale.restore(kept, self.job.device)

    def _stale_rows(self) -> list[StaleRows]:
        return [stale for stale in self.stale if stale is not None]


def _tag(layer: int) -> Literal["features", "activations"]:
    return "activations" if layer else "features"
