"""R-MAT (Chakrabarti, Zhan, Faloutsos, SDM 2004), Graph500's skewed recursive model, with classes and triangles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated.shapes import SizeOptions
from gnnexp.datasets.generated.synthetic import DrawOptions, EdgeModel, Generator, local_window
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.graph.generate import rmat_pairs

_NOTE = "synthetic: the label is a stretch of the latent order that local edges and features follow"


@dataclass(kw_only=True, eq=False)
class Rmat(SizeOptions, DrawOptions, LinkOptions, Dataset):
    """Recursive quadrants. The latent order is divided into C equal ranges, and the range of a vertex is its class.

    R-MAT itself has only few more edges inside a range than between ranges. A share `locality` of the edges joins
    vertices that are near each other in the latent order: these edges make classes homophilous and close triangles.
    Features are class centroids plus noise. With `locality=0` the graph is plain R-MAT, and classes are learnt almost
    from features alone.

    Attributes:
        name: name of the graph.
        locality: share of local edges, 0 to 1.
        a: probability of the first quadrant.
        b: probability of the second quadrant (source in the first half, destination in the second).
        c: probability of the third quadrant; the fourth has the rest. Graph500: 0.57, 0.19, 0.19.
        relations: R, number of edge types, which are drawn for each pair of vertices. Each type is rarer than the one
            before; null = no types.
        inverse_relations: the reverse of an edge of type r has type R + r, so there are 2R types.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null. With
            it, the graph is made in memory.
    """

    name: str = "rmat"
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    locality: float = 0.5
    relations: int | None = None
    inverse_relations: bool = True
    unkeyed: ClassVar[frozenset[str]] = frozenset({"buffer_bytes"})

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val, test=self.test)
        self.check_links()
        shares = {key: getattr(self, key) for key in ("a", "b", "c", "locality", "label_noise")}
        problems = [
            Problem(f"dataset.{key}", share, "must be 0 to 1", f"set dataset.{key} within these bounds")
            for key, share in shares.items()
            if not 0 <= share <= 1
        ]
        if self.a + self.b + self.c > 1:
            allowed = "must add up to 1 at most"
            problems.append(Problem("dataset.a, b, c", [self.a, self.b, self.c], allowed, "use 0.57, 0.19, 0.19"))
        if self.relations is not None and not 1 <= self.relations <= 1 << 20:
            problems.append(
                Problem(
                    "dataset.relations", self.relations, "must be 1 to 1048576, or null", "set dataset.relations=null"
                )
            )
        ConfigError.raise_all(problems)
        _ = self.sizes  # which are checked

    @property
    def at_hand(self) -> bool:
        """False: generating the graph may take long."""
        return False

    def load(self) -> Graph:
        """See `Generator.load`."""
        inverses = self.relations if self.inverse_relations else None
        return self.with_links(self.generator().load(), symmetrize=True, inverses=inverses)

    def generate(self, folder: Path) -> Graph | None:
        """See `Generator.write`."""
        return self.generator().write(folder) if self.link_split is None else None

    def generator(self) -> Generator:
        """What makes the graph."""
        sizes = self.sizes
        ends = np.rint(np.cumsum([self.a, self.b, self.c]) * 65536).astype(np.int64)
        model = RmatModel(sizes.num_nodes, ends, self.locality, local_window(sizes, self.locality))
        types = self.relations or 0, self.inverse_relations
        return Generator(self.name, sizes, model, self, _NOTE, sizes.num_classes, types)


@dataclass(frozen=True)
class RmatModel(EdgeModel):
    """The arguments of `rmat_pairs`.

    Attributes:
        num_nodes: V, number of vertices.
        quadrants: `[3]` cumulative probabilities of quadrants, in units of 1/65536.
        locality: share of local edges.
        window: reach of local edges.
    """

    num_nodes: int
    quadrants: np.ndarray
    locality: float
    window: int

    def fill(self, key: int, first: int, order: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
        """See `EdgeModel.fill`."""
        self._fill(key, first, order, src, dst, np.empty(0, np.int32))

    def _fill(
        self, key: int, first: int, order: np.ndarray, src: np.ndarray, dst: np.ndarray, attempts: np.ndarray
    ) -> None:
        levels = (self.num_nodes - 1).bit_length()
        numbers = (self.num_nodes, levels, self.quadrants, self.locality, self._reach())
        rmat_pairs(np.uint64(key), first, *numbers, order, src, dst, attempts)

    def _reach(self) -> int:
        return min(self.window, (self.num_nodes - 1) // 2)

    def pair_rates(self, key: int, count: int) -> np.ndarray:
        """See `EdgeModel.pair_rates`."""
        p, q, attempts = (np.empty(count, np.int32) for _ in range(3))
        self._fill(key, 0, np.empty(0, np.int32), p, q, attempts)
        accepted = np.count_nonzero(attempts) / max(1, int(attempts.sum()))
        rates = (1 - self.locality) * (self._quadrants(p, q) + self._quadrants(q, p)) / max(accepted, 1 / count)
        around = np.abs(p.astype(np.int64) - q)
        near = np.minimum(around, self.num_nodes - around) <= self._reach()
        rates[near] += self.locality / (self.num_nodes * self._reach())
        return np.where(p == q, 0.0, rates)

    def _quadrants(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Probability of each ordered pair (p, q) in one draw of all levels."""
        cells = np.diff(np.concatenate([[0], self.quadrants, [65536]])) / 65536
        product = np.ones(p.size)
        for level in range((self.num_nodes - 1).bit_length()):
            product *= cells[2 * (p >> level & 1) + (q >> level & 1)]
        return product
