"""Graphs of METIS (manual, section 4.1.1): a line for each vertex, with its neighbours from 1 on.

Also files of the DIMACS challenges, KaHIP and others that use this format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import WrittenDataset, check_memory
from gnnexp.datasets.formats.adjacency import USUAL, VertexFiles, files_next_to
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.foreign import VERTEX, ForeignEdges, ForeignGraph
from gnnexp.datasets.reading.content import MARK, content_of, endings, one_file, visible_files
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.graph import Graph

_ENDINGS = (".graph", ".metis")
_FACTOR = 24  # bytes of memory for each byte of the text: a number has two characters at least
_LINE = 320  # and for each line, which becomes an array
_HEADER = "the first line needs: vertices edges [fmt [ncon]], where fmt has three digits of 0 and 1"
_FIX = "correct the file: METIS manual, section 4.1.1"


@dataclass(frozen=True)
class _Header:
    """The first line: n, m, and which numbers come before and between the neighbours of a vertex."""

    count: int
    edges: int
    sizes: bool
    vertex_weights: int
    edge_weights: bool

    @property
    def first(self) -> int:
        """How many numbers come before the neighbours."""
        return self.sizes + self.vertex_weights


@dataclass(kw_only=True, eq=False)
class Metis(ForeignOptions, VertexFiles, WrittenDataset):
    """An undirected graph in METIS's format. Weights of edges are kept; weights and sizes of vertices are left out.

    Attributes:
        name: name of the graph.
        path: the file, `.graph` or `.metis` (also `.gz`), or a folder with one; null = `$GNNEXP_DATA/metis`.
    """

    name: str = "metis"
    path: str | None = None

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file of METIS, or a folder with one. A graph of WebGraph has the same ending, and is refused.

        Raises:
            DataError: it is a graph of WebGraph (LAW).
        """
        files = visible_files(place)
        graphs = [file for file in files if endings(file) in _ENDINGS]
        if len(graphs) == 1:
            _refuse_webgraph(graphs[0])
        if len(graphs) != 1 or (place.is_dir() and {file.name for file in files} - USUAL != {graphs[0].name}):
            return None
        return files_next_to(graphs[0]) if place.is_dir() else []

    def sources(self) -> list[Path]:
        """The file of the graph first."""
        return self.with_files(one_file(self.path, "metis", lambda one: endings(one) in _ENDINGS, ".graph or .metis"))

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The graph in the file."""
        path = self.sources()[0]
        _refuse_webgraph(path)
        rows, header = _rows(path)
        edges = _edges(str(path), rows, header, once=self.symmetrize)
        left = ["sizes"] * header.sizes + ["weights"] * (header.vertex_weights > 0)
        notes = [f"{' and '.join(left)} of vertices are left out"] if left else []
        return ForeignGraph({VERTEX: self.vertices(path.parent, header.count)}, [edges], notes)


def _refuse_webgraph(path: Path) -> None:
    """Refuse the binary format of WebGraph, in which LAW publishes its graphs.

    Raises:
        DataError: the file is one.
    """
    base = path.with_suffix("")
    if path.suffix == ".graph" and is_file(base.with_name(f"{base.name}.properties")):
        raise DataError(
            Problem(
                str(path),
                "a .properties file is next to it",
                "is a compressed graph of WebGraph (LAW), which its Java library reads",
                "write its edges as text: java "
                f"it.unimi.dsi.webgraph.ArcListASCIIGraph -g BVGraph {base} {base}.arcs; then "
                f"gnnexp data {base}.arcs",
            )
        )


def _rows(path: Path) -> tuple[list[np.ndarray], _Header]:
    """The numbers of each vertex, and the header.

    Raises:
        DataError: a line has other things than whole numbers, or there are too few or too many lines.
    """
    content = content_of(path, _FACTOR).removeprefix(MARK)
    check_memory(_LINE * (content.count(b"\n") + content.count(b"\r")), f"{path}: its lines")
    every = enumerate(content.splitlines(), 1)
    lines = [(number, line) for number, line in every if not line.lstrip().startswith(b"%")]
    while lines and not lines[0][1].strip():
        lines.pop(0)
    header = _header(str(path), lines[0][1] if lines else b"")
    body = lines[1:]
    while len(body) > header.count and not body[-1][1].strip():
        body.pop()
    if len(body) != header.count:
        raise DataError(Problem(str(path), f"{len(body)} lines", f"the first line says {header.count} vertices", _FIX))
    rows = []
    for number, line in body:
        try:
            rows.append(np.array(line.split(), np.int64))
        except (ValueError, OverflowError):
            raise DataError(
                Problem(f"{path}, line {number}", line[:60].decode("utf-8", "replace"), "must be whole numbers", _FIX)
            ) from None
    return rows, header


def _header(key: str, line: bytes) -> _Header:
    words = line.split()
    if not 2 <= len(words) <= 4 or not all(one.isdigit() and len(one) < 19 for one in words):
        raise DataError(Problem(key, line[:60].decode("utf-8", "replace"), _HEADER, _FIX))
    form = (words[2] if len(words) > 2 else b"0").decode().zfill(3)
    if len(form) != 3 or set(form) - {"0", "1"}:
        raise DataError(Problem(key, form, _HEADER, _FIX))
    weights = int(words[3]) if len(words) > 3 else 1
    return _Header(int(words[0]), int(words[1]), form[0] == "1", weights * (form[1] == "1"), form[2] == "1")


def _edges(key: str, rows: list[np.ndarray], header: _Header, *, once: bool) -> ForeignEdges:
    """Each edge `once`, or in both directions.

    Raises:
        DataError: a line has too few numbers, or edges are not there in both directions, or not as many as `m`.
    """
    step = 1 + header.edge_weights
    odd = [
        row for row, numbers in enumerate(rows) if numbers.size < header.first or (numbers.size - header.first) % step
    ]
    DataError.raise_all(
        [
            Problem(
                f"{key}, vertex {row + 1}",
                f"{rows[row].size} numbers",
                f"there must be {header.first}, and {step} for each neighbour; {len(odd)} vertices are wrong",
                _FIX,
            )
            for row in odd[:20]
        ]
    )
    lists = [numbers[header.first :] for numbers in rows]
    flat = np.concatenate([np.empty(0, np.int64), *lists])
    source = np.repeat(np.arange(len(rows)), [neighbours.size // step for neighbours in lists])
    target, weight = flat[::step] - 1, flat[1::2] if header.edge_weights else None
    wrong = np.flatnonzero((target < 0) | (target >= header.count))
    DataError.raise_all(
        [
            Problem(
                f"{key}, vertex {source[place] + 1}",
                int(target[place] + 1),
                f"neighbours are from 1 to {header.count}; {wrong.size} are wrong",
                _FIX,
            )
            for place in wrong[:20].tolist()
        ]
    )
    if target.size != 2 * header.edges:
        loops = int((source == target).sum())
        said = f"; {loops} vertices are their own neighbours (loops), which METIS does not have" if loops else ""
        raise DataError(
            Problem(
                key,
                f"{target.size} neighbours",
                f"the first line says {header.edges} edges, each of which is in the lines of both ends{said}",
                _FIX,
            )
        )
    _refuse_one_way(key, source, target, weight, header.count)
    kept = source <= target if once else slice(None)
    return ForeignEdges(source[kept], target[kept], weight=None if weight is None else weight[kept].astype(np.float32))


def _refuse_one_way(key: str, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None, count: int) -> None:
    """Refuse an edge that is not in the line of the other end, or has another weight there."""
    values = np.ones(source.size, np.int64) if weight is None else weight
    matrix = scipy.sparse.csr_array((values, (source, target)), shape=(count, count))
    pattern = scipy.sparse.csr_array((np.ones(source.size, np.int64), (source, target)), shape=(count, count))
    for two_ways, what in ((pattern, "an edge is in one line only"), (matrix, "weights in both lines differ")):
        difference = scipy.sparse.coo_array(two_ways - scipy.sparse.csr_array(two_ways.T))
        wrong = np.flatnonzero(difference.data)
        if wrong.size:
            pair = f"{difference.row[wrong[0]] + 1}, {difference.col[wrong[0]] + 1}"
            raise DataError(Problem(f"{key}, vertices {pair}", f"{wrong.size // 2} edges", what, _FIX))
