"""The configuration model (Bollobás 1980; Newman, "Networks", chapter 12), nested in blocks: any degrees, any size.

Degrees are log-normal, cut at 1 and at a largest degree. A share of every vertex's degree belongs to each level: to a
small block of neighbours (triangles), to a community, and to the whole graph. Inside a block, ends of edges are matched
at random. So an edge is a pure function of (seed, vertex, number of the edge), see `gnnexp.kernels.graph.stubs`.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnexp.datasets.base import WrittenDataset, check_memory
from gnnexp.datasets.generated.degrees import DegreeModel
from gnnexp.datasets.generated.fits import FitName, FittedShape, fit_of
from gnnexp.datasets.generated.shapes import ScaledSizes, Sizes
from gnnexp.datasets.generated.stub_draws import WeightModel, stub_edges
from gnnexp.datasets.generated.stub_vertices import Places, VertexModel, targets, write_vertices
from gnnexp.datasets.generated.synthetic import DrawOptions, Ids
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.stubs import StubEdges
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.graph.stubs import keep_simple, sort_sources

# Numbers of the random streams of one seed; those below 16 belong to `synthetic`.
_VERTICES, _MATCHING, _IDS = range(16, 19)
_MOST_DIRECTED = 2**32 - 1
_NOTE = "synthetic: the label is the community of a vertex; degrees follow dataset.sigma and dataset.max_degree"


@dataclass(kw_only=True, eq=False)
class Configuration(ScaledSizes, DrawOptions, WrittenDataset):
    """A multigraph with given degrees. The class of a vertex is its community modulo C.

    An undirected graph has both directions of every edge, and its degrees are exact. Self loops and parallel edges
    stay, unless `simple` is set; a block with an odd number of ends has one loop more. Communities are the largest
    blocks. If the whole graph is the only block, they are C ranges of equal size.

    Attributes:
        name: name of the graph.
        shape: published graph whose sizes and fitted parameters are used (`gnnexp.datasets.generated.fits`); null =
            `small`.
        directed: whether edges have one direction. Sources are then drawn by out-weights. null = the shape's, as for
            all that follow.
        sigma: standard deviation of the logarithm of degrees (in-degrees, if directed), before they are cut.
        max_degree: largest degree; the shape's is cut at V - 1.
        zeros: share of vertices without in-edges.
        block_sizes: numbers of vertices in a block, ascending. The whole graph is one more level.
        shares: share of every degree, by level, the whole graph last.
        sigma_out: standard deviation of the logarithm of out-weights. Only directed graphs have them.
        correlation: correlation of the logarithms of in-degree and out-weight, -1 to 1.
        simple: drop self loops, and merge parallel edges. A note says how many.
        train_in: share of the communities that have training vertices.
        density_range: ratio of the largest to the smallest share of training vertices in these communities. Shares are
            spread evenly in the logarithm.
        train_power: power t; the chance of being a training vertex in a community follows in-degree^t.
    """

    name: str = "configuration"
    shape: FitName | None = None
    directed: bool | None = None
    sigma: float | None = None
    max_degree: int | None = None
    zeros: float | None = None
    block_sizes: Sequence[int] | None = None
    shares: Sequence[float] | None = None
    sigma_out: float | None = None
    correlation: float | None = None
    simple: bool = False
    ids: Ids = "latent"
    train_in: float | None = None
    density_range: float = 1.0
    train_power: float | None = None
    least_features: ClassVar[int] = 0
    unkeyed: ClassVar[frozenset[str]] = frozenset({"buffer_bytes"})

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val, test=self.test)
        ConfigError.raise_all(self._problems())
        ConfigError.raise_all(self._degree_problems() + self._train_problems())

    @property
    def at_hand(self) -> bool:
        """False: generating the graph may take long."""
        return False

    def shape_sizes(self) -> Sizes:
        """The sizes of the published graph."""
        return fit_of(self.shape).sizes

    @cached_property
    def fit(self) -> FittedShape:
        """The shape's parameters, replaced by those that are set."""
        base = fit_of(self.shape)
        own = {name: getattr(self, name) for name in ("sigma", "zeros", "sigma_out", "correlation", "train_in")}
        own |= {name: getattr(self, name) for name in ("directed", "train_power")}
        most = min(base.max_degree, self.sizes.num_nodes - 1) if self.max_degree is None else self.max_degree
        return FittedShape(
            self.sizes,
            max_degree=most,
            block_sizes=base.block_sizes if self.block_sizes is None else tuple(self.block_sizes),
            shares=base.shares if self.shares is None else tuple(self.shares),
            **{name: getattr(base, name) if value is None else value for name, value in own.items()},
        )

    @property
    def degree_model(self) -> DegreeModel:
        """The distribution of degrees (in-degrees, if directed)."""
        fit = self.fit
        return DegreeModel(self.sizes.num_edges / self.sizes.num_nodes, fit.sigma, fit.max_degree, fit.zeros)

    @property
    def community_size(self) -> int:
        """Number of vertices in a community; the last one may be smaller."""
        blocks = self.fit.block_sizes
        return blocks[-1] if blocks else -(-self.sizes.num_nodes // self.sizes.num_classes)

    def _problems(self) -> list[Problem]:
        fit, V = self.fit, self.sizes.num_nodes
        rules = (
            ("sigma", fit.sigma, 0 < fit.sigma <= 10, "must be above 0 and at most 10", "1"),
            ("max_degree", fit.max_degree, 2 <= fit.max_degree < V, f"must be 2 to {V - 1}", str(V - 1)),
            ("zeros", fit.zeros, 0 <= fit.zeros < 1, "must be 0 or more, and below 1", "0"),
            ("sigma_out", fit.sigma_out, 0 <= fit.sigma_out <= 5, "must be 0 to 5", "1"),
            ("correlation", fit.correlation, -1 <= fit.correlation <= 1, "must be -1 to 1", "0"),
            ("label_noise", self.label_noise, 0 <= self.label_noise <= 1, "must be 0 to 1", "0.05"),
            ("train_in", fit.train_in, 0 < fit.train_in <= 1, "must be above 0 and at most 1", "1"),
            ("density_range", self.density_range, 1 <= self.density_range <= 1e6, "must be 1 to 1e6", "1"),
            ("train_power", fit.train_power, -8 <= fit.train_power <= 8, "must be -8 to 8", "0"),
            ("buffer_bytes", self.buffer_bytes, self.buffer_bytes > 0, "must be above 0", str(1 << 30)),
        )
        outside = [
            Problem(f"dataset.{key}", value, allowed, f"set dataset.{key}={fix}")
            for key, value, good, allowed, fix in rules
            if not good
        ]
        return outside + self._level_problems()

    def _level_problems(self) -> list[Problem]:
        blocks, shares, V = self.fit.block_sizes, self.fit.shares, self.sizes.num_nodes
        problems = []
        if not all(low < high for low, high in zip((1, *blocks), (*blocks, V), strict=True)):
            allowed = f"must ascend, from 2 vertices to fewer than the graph's {V}"
            fix = "set dataset.block_sizes and dataset.shares, or another dataset.scale"
            problems.append(Problem("dataset.block_sizes", list(blocks), allowed, fix))
        if len(shares) != len(blocks) + 1:
            allowed = f"must be {len(blocks) + 1} shares: one for each of dataset.block_sizes, and the whole graph's"
            problems.append(Problem("dataset.shares", list(shares), allowed, "give one share more than block sizes"))
        elif not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-9:
            allowed = f"must be from 0 to 1, and add up to 1, not {sum(shares):g}"
            problems.append(Problem("dataset.shares", list(shares), allowed, "correct the last share"))
        return problems

    def _degree_problems(self) -> list[Problem]:
        fit, mean, V = self.fit, self.degree_model.mean, self.sizes.num_nodes
        low, high = 1 - fit.zeros, (1 - fit.zeros) * fit.max_degree
        problems = []
        if not low < mean < high:
            allowed = (
                f"must be above {math.ceil(low * V)} and below {int(high * V)}: {V} vertices have degrees 1 to "
                f"{fit.max_degree}, and a share of {fit.zeros:g} has degree 0"
            )
            fix = "raise dataset.max_degree" if mean >= high else "raise dataset.zeros"
            problems.append(
                Problem("dataset.num_edges", self.sizes.num_edges, allowed, f"{fix}, or set another number")
            )
        if fit.directed and self.sizes.num_edges > _MOST_DIRECTED:
            allowed = f"at most {_MOST_DIRECTED} for a directed graph"
            problems.append(
                Problem(
                    "dataset.num_edges", self.sizes.num_edges, allowed, "set dataset.directed=false, or fewer edges"
                )
            )
        return problems

    def _train_problems(self) -> list[Problem]:
        count = round(self.sizes.train * self.sizes.num_nodes)
        places = self.places
        room = places.num_members(places.chosen(self.fit.train_in))
        if self.vertices.is_uniform or count <= room:
            return []
        allowed = f"the communities that dataset.train_in={self.fit.train_in:g} allows have {room} vertices"
        fix = f"set dataset.train={room / self.sizes.num_nodes:.4f}, or raise dataset.train_in"
        return [Problem("dataset.train", f"{count} training vertices", allowed, fix)]

    def key_of(self, *words: int) -> int:
        """The key of a random stream."""
        return stream(self.seed, Purpose.GENERATE, *words)

    @property
    def places(self) -> Places:
        """Where vertices are: ids and communities."""
        id_key = self.key_of(_IDS) if self.ids == "scrambled" else None
        return Places(self.sizes.num_nodes, self.community_size, id_key)

    @property
    def vertices(self) -> VertexModel:
        """What is drawn for vertices."""
        fit = self.fit
        return VertexModel(
            self.sizes,
            self.places,
            self.seed,
            self.signal,
            self.label_noise,
            fit.train_in,
            self.density_range,
            fit.train_power,
        )

    def edges(self) -> StubEdges:
        """The edges, which are computed when they are read; O(V) memory.

        Raises:
            DataError: the memory does not hold the bounds.
        """
        fit, V = self.fit, self.sizes.num_nodes
        levels = len(fit.shares)
        check_memory((8 * (levels + 2 + fit.directed) + 4) * V, f"dataset={self.name}")
        return stub_edges(
            self.degree_model,
            WeightModel(fit.sigma_out, fit.correlation) if fit.directed else None,
            (*fit.block_sizes, V),
            fit.shares,
            V,
            self.key_of(_VERTICES),
            tuple(self.key_of(_MATCHING, level) for level in range(levels)),
            self.places.id_key,
        )

    def generate(self, folder: Path) -> Graph:
        """Write the graph to `folder` row by row, and open it as memory maps.

        Raises:
            DataError: memory or disk have no room for the graph.
        """
        self._check_disk(folder)
        edges = self.edges()
        indptr = edges.indptr()
        with GraphWriter(folder) as writer:
            notes = self._write_simple(edges, indptr, writer) if self.simple else self._write(edges, indptr, writer)
            splits = targets(self.vertices, indptr)
            write_vertices(self.vertices, splits, writer)
            writer.finish_graph(name=self.name, num_classes=self.sizes.num_classes, notes=(_NOTE, *notes))
        return open_graph(folder)

    def _check_disk(self, folder: Path) -> None:
        sizes = self.sizes
        needed = 4 * sizes.num_edges + sizes.num_nodes * (4 * sizes.num_features + 24)
        place = next(parent for parent in folder.absolute().parents if parent.exists())
        free = shutil.disk_usage(place).free
        if needed > free:
            fits = self.scale * free / needed
            raise DataError(
                Problem(
                    f"dataset={self.name}",
                    f"{needed} bytes ({needed / 2**30:.1f} GiB): {sizes.num_edges} edges, {sizes.num_nodes} vertices "
                    f"with {sizes.num_features} features",
                    f"{free / 2**30:.1f} GiB are free on the disk of {place}",
                    f"set dataset.scale={fits:.2g} or dataset.num_features=0, or make room there",
                )
            )

    def chunks(self, indptr: np.ndarray) -> Iterator[tuple[int, int]]:
        """Ranges of ids whose edges fit in the buffer; one id with more edges is a range of its own."""
        most, first = max(1, self.buffer_bytes // 16), 0
        while first < self.sizes.num_nodes:
            last = int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1
            last = min(max(last, first + 1), self.sizes.num_nodes)
            yield first, last
            first = last

    def _write(self, edges: StubEdges, indptr: np.ndarray, writer: GraphWriter) -> list[str]:
        writer.put("indptr", indptr)
        indices = writer.array("indices", (int(indptr[-1]),), np.int32)
        loops = parallel = 0
        for first, last in self.chunks(indptr):
            bounds, sources = edges.rows(indptr, first, last)
            surplus = np.empty((2, last - first), np.int32)
            sort_sources(first, bounds, sources, surplus)
            loops, parallel = loops + int(surplus[0].sum()), parallel + int(surplus[1].sum())
            indices[indptr[first] : indptr[last]] = sources
        return [f"{loops} self loops and {parallel} repetitions of edges are part of the graph (dataset.simple=false)"]

    def _write_simple(self, edges: StubEdges, indptr: np.ndarray, writer: GraphWriter) -> list[str]:
        """Two passes: the first one counts what stays, because the array on disk needs its size."""
        kept = np.zeros_like(indptr)
        loops = parallel = 0
        for first, last in self.chunks(indptr):
            bounds, sources = edges.rows(indptr, first, last)
            surplus = np.empty((2, last - first), np.int32)
            sort_sources(first, bounds, sources, surplus)
            loops, parallel = loops + int(surplus[0].sum()), parallel + int(surplus[1].sum())
            kept[first + 1 : last + 1] = np.diff(bounds) - surplus.sum(0)
        np.cumsum(kept, out=kept)
        writer.put("indptr", kept)
        indices = writer.array("indices", (int(kept[-1]),), np.int32)
        for first, last in self.chunks(indptr):
            bounds, sources = edges.rows(indptr, first, last)
            sort_sources(first, bounds, sources, np.empty((2, last - first), np.int32))
            simple = np.empty(int(kept[last] - kept[first]), np.int32)
            keep_simple(first, bounds, sources, kept[first : last + 1] - kept[first], simple)
            indices[kept[first] : kept[last]] = simple
        return [f"{loops} self loops and {parallel} repetitions of edges were dropped (dataset.simple=true)"]
