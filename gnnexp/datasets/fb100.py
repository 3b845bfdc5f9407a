"""Facebook100 friendship graphs (Traud et al. 2012) as MATLAB files, with the task of Lim et al. (NeurIPS 2021)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse
import torch

from gnnexp.datasets.base import Dataset, checked, single_file
from gnnexp.datasets.features import Sparse, feature_rows, one_hot_columns
from gnnexp.datasets.split import check_shares, random_split
from gnnexp.datasets.unpickle import csr_matrix
from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

_NUM_COLUMNS, _GENDER = 7, 1
# Element type of MATLAB v5, and how far such a file may unpack (the published ones: 5 times).
_COMPRESSED = 15
_MAX_RATIO, _ALWAYS_UNPACKED = 100, 1 << 26


class Fb100(Dataset):
    """One school: label = gender - 1 (0 in the file = missing = -1), features = one-hot of the six other columns.

    Args:
        name: of the school, as in its file `<name>.mat`.
        path: the file or its folder; null = `$GNNEXP_DATA/fb100-<name in lower case>`.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        symmetrize: add the reverse of every edge (the published files hold both).
        self_loops: `keep`, `add` or `remove`.
        train: share of training vertices among the labelled.
        val: share of validation vertices; the rest is test.
        seed: of the split.
    """

    def __init__(
        self,
        *,
        name: str = "Cornell5",
        path: str | None = None,
        sparse: Sparse = "auto",
        symmetrize: bool = True,
        self_loops: Literal["keep", "add", "remove"] = "remove",
        train: float = 0.5,
        val: float = 0.25,
        seed: int = 0,
    ) -> None:
        check_shares(train=train, val=val)
        self.name = name
        self.path = path
        self.sparse = sparse
        self.symmetrize = symmetrize
        self.self_loops = self_loops
        self.train = train
        self.val = val
        self.seed = seed

    def sources(self) -> list[Path]:
        """The MATLAB file."""
        return [single_file(self.path, f"fb100-{self.name.lower()}", f"{self.name}.mat")]

    def load(self) -> Graph:
        """The graph."""
        path = self.sources()[0]
        adjacency, info = _read(path)
        coo = adjacency.tocoo()
        arrays = build_graph(
            coo.col,
            coo.row,
            info.shape[0],
            symmetrize=self.symmetrize,
            self_loops=self.self_loops,
            key=str(path),
        )
        labels = info[:, _GENDER].astype(np.int64) - 1
        splits = random_split(labels.size, self.train, self.val, seed=self.seed, among=labels >= 0)
        others = np.delete(info, _GENDER, axis=1)
        graph = Graph(
            arrays.indptr,
            arrays.indices,
            features=feature_rows(one_hot_columns(others), self.sparse, normalize=False),
            labels=torch.from_numpy(labels),
            num_classes=2,
            splits=splits,
            name=self.name,
            notes=(
                f"{int((labels < 0).sum())} vertices without a label are in no split",
                f"no published split: drawn by gnnexp, seed {self.seed}",
                "describes real, anonymised people: use it in aggregate only",
            ),
        )
        return checked(graph)


def _read(path: Path) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """The adjacency matrix and `local_info`, their declared shapes checked before they are read."""
    import scipy.io

    try:
        _check_unpacked(path)
        shapes = {name: shape for name, shape, _ in scipy.io.whosmat(path)}
        _check_shapes(shapes, path)
        content = scipy.io.loadmat(path, variable_names=["A", "local_info"])
    except DataError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OSError, EOFError, NotImplementedError, MemoryError,
            OverflowError, AttributeError, zlib.error, scipy.io.matlab.MatReadError) as error:  # fmt: skip
        mend = "get the file again from its publisher (MATLAB v5, not v7.3)"
        raise DataError(Problem(str(path), str(error)[:200], "a whole MATLAB v5 file", mend)) from None
    return _checked_content(content["A"], content["local_info"], path)


def _check_unpacked(path: Path) -> None:
    """Refuse what unpacks to far more than a matrix of the file's size can: scipy reads as much as there is."""
    total = 0
    with path.open("rb") as file:
        order = ">" if file.read(128)[126:] == b"MI" else "<"
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            total += _unpacked_bytes(file, size) if kind == _COMPRESSED else 0
            file.seek(end)
    limit = max(_ALWAYS_UNPACKED, _MAX_RATIO * path.stat().st_size)
    if total > limit:
        mend = "get the file again from its publisher"
        raise DataError(Problem(str(path), f"unpacks to {total} bytes", f"at most {limit}", mend))


def _unpacked_bytes(file: IO[bytes], size: int) -> int:
    """Bytes that the next `size` ones unpack to."""
    unpacker, total = zlib.decompressobj(), 0
    while size > 0 and (piece := file.read(min(1 << 16, size))):
        size -= len(piece)
        while piece:
            total += len(unpacker.decompress(piece, 1 << 20))
            piece = unpacker.unconsumed_tail
    return total


def _check_shapes(shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    nodes, info = shapes.get("A", ()), shapes.get("local_info", ())
    if len(nodes) != 2 or len(info) != 2 or nodes[0] != nodes[1] or info != (nodes[0], _NUM_COLUMNS):
        allowed = f"A [V, V] and local_info [V, {_NUM_COLUMNS}]"
        raise DataError(Problem(str(path), shapes, allowed, "check that it is a Facebook100 file"))
    # Seven values per vertex cannot take less than this, whatever the compression.
    if nodes[0] > 1032 * path.stat().st_size:
        raise DataError(Problem(str(path), f"{nodes[0]} vertices", "no more than fit in the file", "get it again"))


def _checked_content(matrix: Any, info: np.ndarray, path: Path) -> tuple[scipy.sparse.csr_array, np.ndarray]:  # noqa: ANN401
    mend = "get the file again from its publisher"
    is_sparse = isinstance(matrix, (scipy.sparse.csc_matrix, scipy.sparse.csc_array))
    if not is_sparse or info.dtype.kind not in "iu":
        found = f"A {type(matrix).__name__}, local_info {info.dtype}"
        raise DataError(Problem(str(path), found, "A must be sparse and local_info integers", mend))
    # scipy does not check what it reads; the transpose of a CSC matrix has the same three arrays.
    adjacency = csr_matrix(matrix.data, matrix.indices, matrix.indptr, matrix.shape[::-1], f"{path}: A")
    gender = info[:, _GENDER]
    if gender.size and (int(gender.min()) < 0 or int(gender.max()) > 2):
        raise DataError(Problem(f"{path}: local_info", f"{gender.min()}..{gender.max()}", "gender 0, 1 or 2", mend))
    return adjacency, info
