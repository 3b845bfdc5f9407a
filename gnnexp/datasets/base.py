"""The interface of datasets: they load a `Graph`, and compute the key of its content."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from io import BufferedReader
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.signature import decisive
from gnnexp.datasets.reading.checksums import FIX, LARGEST, Origin, differing_problems, origin_of
from gnnexp.datasets.reading.names import GraphNames
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import is_file, open_regular
from gnnexp.graph.build import CscArrays
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.stream import EdgeStream
from gnnexp.graph.validate import validate_graph
from gnnexp.measure.available import available_memory
from gnnexp.provenance.code import code_key
from gnnexp.provenance.names import name_of, version_of

ROOT_VARIABLE = "GNNEXP_DATA"
# Hashing a large file takes a quarter of a second or more.
_LARGE_BYTES, _START_BYTES = 256 << 20, 4096
_MAGIC = {".npy": b"\x93NUMPY", ".npz": b"PK", ".gz": b"\x1f\x8b"}
_TEXTS = (".tsv", ".csv", ".txt", ".index")
# More vertices per edge than this mean a damaged count, or ids that were never renumbered (hashes, user numbers).
_MAX_NODES_PER_EDGE, _ALWAYS_ALLOWED = 64, 1 << 20
_RESERVE = 200 << 20  # bytes
_SHOWN = 8


class Dataset(ABC):
    """A graph with features, labels and splits, which is loaded from files or generated.

    A subclass stores every constructor argument as an attribute of the same name, so that `options` finds it.

    Attributes:
        version: increased when the same options and files give another graph than before, or a default changes.
        unkeyed: constructor arguments that never change the graph (place of the files, size of a buffer).
        is_published: whether files of this form are published, so that their bytes are compared with checksums.
    """

    name: str
    version: ClassVar[int] = 1
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path"})
    is_published: ClassVar[bool] = False

    @abstractmethod
    def load(self) -> Graph:
        """The graph, in memory.

        Raises:
            DataError: a file is missing, damaged or wrong. Names all problems at once if possible.
        """

    def sources(self) -> list[Path]:
        """The files whose bytes decide the graph; empty for a generated graph.

        Raises:
            DataError: a file is missing.
        """
        return []

    def missing(self) -> list[Problem]:
        """Problems of missing files, found without downloading or reading a file."""
        try:
            self.sources()
        except DataError as error:
            return list(error.problems)
        return []

    def options(self) -> dict[str, object]:
        """Constructor arguments that decide the graph, by name."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self" and name not in self.unkeyed}

    def key(self) -> str:
        """SHA-256 (hexadecimal) of the name, version, options, the user's code and the bytes of the sources.

        Raises:
            DataError: source files are missing or cannot be read.
        """
        digest = hashlib.sha256()
        digest.update(self.described().encode())
        files = self.sources()
        digests = _digests_of(files)
        for path in files:
            digest.update(f"{path.name}:{digests[path]}\n".encode())
        return digest.hexdigest()

    @final
    def described(self) -> str:
        """What the key has in addition to the bytes of the sources: name, version, options, and the user's code.

        Raises:
            DataError: the user's code cannot be read, or was edited since this process imported it.
        """
        kind = name_of(f"{type(self).__module__}.{type(self).__qualname__}")
        options = decisive(self.options(), type(self))
        return json.dumps([kind, version_of(type(self)), options], sort_keys=True) + code_key(type(self))

    @final
    def origin(self) -> Origin | None:
        """Of which published data set the bytes are; None for a dataset without published files.

        Takes little time: files that are larger than all whose checksum is known are not read.

        Raises:
            DataError: source files are missing or cannot be read.
        """
        return origin_of(_digests_of(self.sources(), LARGEST), self.name) if self.is_published else None

    @final
    def origin_notes(self) -> tuple[str, ...]:
        """A note if the bytes are not those of a published data set."""
        origin = self.origin()
        return () if origin is None or origin.is_known else (origin.text,)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """Further overrides with which this class reads the file or folder `place`; None if it does not know it.

        `gnnexp data` asks all datasets. It adds the choice, and `dataset.path` if it is not among the overrides. The
        answer must be quick: look at names and the first bytes of files, and import no library of the format.
        """
        return None

    def like(self, names: GraphNames) -> Dataset:
        """This dataset with the columns of another graph, whose names are `names`: for a model of that graph.

        Means, deviations and lists of categories are those of that graph. By default this is the dataset itself, for
        features that do not depend on other vertices.
        """
        return self

    @property
    def at_hand(self) -> bool:
        """Whether the dataset is read from existing files. Its problems are then reported with the configuration's."""
        return True

    def stream(self) -> EdgeStream | None:
        """The edges without the graph in memory; None if the dataset can only be read as a whole.

        Raises:
            DataError: a file is missing or damaged.
        """
        return None

    def generate(self, folder: Path) -> Graph | None:
        """Write the graph directly to `folder` in gnnexp's format, and open it. None if it can only be loaded.

        The graph does not need to fit in memory.
        """
        return None


class WrittenDataset(Dataset):
    """A dataset that writes its graph to disk first, and reads from there what memory shall hold."""

    @abstractmethod
    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""

    @final
    def load(self) -> Graph:
        """The graph in memory."""
        return load_written(self.generate)


def load_written(write: Callable[[Path], object]) -> Graph:
    """The graph, in memory, that `write` writes to a folder in gnnexp's format."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "graph")
        return open_graph(Path(folder) / "graph", mmap=False)


class VerifiedDataset(Dataset):
    """A dataset that refuses files whose bytes are not known, if a user asks for this.

    Attributes:
        verify: whether it refuses them.
    """

    verify: bool
    is_published: ClassVar[bool] = True
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "verify"})

    @final
    def key(self) -> str:
        """See `Dataset.key`.

        Raises:
            DataError: also if bytes are not known, with `verify`.
        """
        self.check_bytes()
        return super().key()

    @final
    def check_bytes(self) -> None:
        """Refuse bytes that are not known, with `verify`.

        Raises:
            DataError: names all files that differ.
        """
        if not self.verify:
            return
        DataError.raise_all(self.byte_problems())
        origin = self.origin()
        if origin is not None and not origin.is_known:
            raise DataError(Problem("dataset.verify", True, origin.text, FIX))

    @final
    def byte_problems(self) -> list[Problem]:
        """Files that differ from the published ones of their names."""
        return differing_problems(_digests_of(self.sources(), LARGEST))


def _digests_of(files: Iterable[Path], most: int | None = None) -> dict[Path, str]:
    """SHA-256 of each file as hexadecimal text, empty for files of more than `most` bytes.

    Raises:
        DataError: files cannot be read, or do not begin like files of their names.
    """
    digests, unreadable = {}, []
    for path in files:
        try:
            with open_regular(path) as file:
                if most is not None and os.fstat(file.fileno()).st_size > most:
                    digests[path] = ""
                elif problem := first_bytes_problem(path, file):
                    unreadable.append(problem)
                else:
                    digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            fix = "make the file readable for you"
            unreadable.append(Problem(str(path), error.strerror, "this file of the dataset is needed", fix))
    DataError.raise_all(unreadable)
    return digests


def first_bytes_problem(path: Path, file: BufferedReader) -> Problem | None:
    """The problem of a large file whose first bytes do not fit its name, found before its hash takes long.

    Small files are not checked here, because their readers give better messages.
    """
    if os.fstat(file.fileno()).st_size < _LARGE_BYTES:
        return None
    start = file.peek(_START_BYTES)[:_START_BYTES]
    suffix = path.suffix.lower()
    nothing = suffix != ".bin" and not start.strip(b"\0")  # numbers without a header may begin with zeros
    if not nothing and start.startswith(_MAGIC.get(suffix, b"")) and not (suffix in _TEXTS and b"\0" in start):
        return None
    allowed = f"must be a {path.suffix} file, but does not begin like one"
    return Problem(str(path), f"{start[:8].hex(' ')} …", allowed, "get the file again, or correct the path")


def data_folder(path: str | None, *directories: str) -> Path:
    """The place of a dataset's files: `path`, or the first of `directories` that exists in `$GNNEXP_DATA`.

    Args:
        path: `dataset.path`, a folder or a file, or None.
        directories: possible names of the folder in the root, the usual name first.

    Raises:
        DataError: there is no such place. The fix names both ways to set it.
    """
    root = os.environ.get(ROOT_VARIABLE)
    if path is not None:
        candidates = [Path(path).expanduser()]
    elif root:
        candidates = [Path(root).expanduser() / directory for directory in directories]
    else:
        raise DataError(
            Problem("dataset.path", None, "the files of this dataset are needed", where_to_put(directories[0]))
        )
    for candidate in candidates:
        try:
            if candidate.is_dir():
                next(candidate.iterdir(), None)
                return candidate
            if candidate.exists():
                return candidate
        except (OSError, ValueError) as error:
            fix = "make it readable for you, or correct the path"
            raise DataError(Problem("dataset.path", str(candidate), f"cannot be read: {error}", fix)) from None
    raise DataError(
        Problem("dataset.path", str(candidates[0]), "there is no such file or folder", where_to_put(directories[0]))
    )


def where_to_put(directory: str) -> str:
    """The fix for missing files."""
    return f"set dataset.path to the folder of the files, or {ROOT_VARIABLE} to a root that holds {directory}/"


def existing_files(folder: Path, names: Iterable[str], directory: str) -> dict[str, Path]:
    """The files `names` in `folder`, by name.

    Raises:
        DataError: names the paths of all missing files.
    """
    if not folder.is_dir():
        fix = where_to_put(directory)
        raise DataError(Problem("dataset.path", str(folder), "must be the folder of the dataset's files", fix))
    paths = {name: folder / name for name in names}
    require(paths.values(), where_to_put(directory), f"; the folder has {listed(folder)}")
    return paths


def require(paths: Iterable[Path], fix: str, detail: str = "") -> None:
    """Check that all files exist; `detail` says in messages what is there instead.

    Raises:
        DataError: names all missing files.
    """
    DataError.raise_all(
        [
            Problem(str(path), "missing", f"this file of the dataset is needed{detail}", fix)
            for path in paths
            if not is_file(path)
        ]
    )


def listed(folder: Path) -> str:
    """The names in a folder, for messages."""
    try:
        names = sorted(one.name for one in folder.iterdir())
    except OSError as error:
        return f"nothing that can be read ({error.strerror})"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(name[:60] for name in names[:_SHOWN]) or "no files") + more


def checked(graph: Graph, *, trainable: bool = True, findings: Findings | None = None) -> Graph:
    """`graph`, if it follows all rules of `validate_graph`.

    Args:
        graph: the loaded graph, without the parts that could not be read (`no_edges`).
        trainable: whether it must have training vertices. A graph without them can be partitioned and sampled.
        findings: problems found while loading. If there are any, missing labels or splits are not reported again.

    Raises:
        DataError: names the findings, then all broken rules.
    """
    findings = findings or Findings()
    unread = bool(findings.problems)
    for problem in validate_graph(graph, name=graph.name):
        absent = problem.value in ("none", "0 vertices")  # a consequence if labels or splits could not be read
        if not (absent and unread) and (trainable or problem.key != f"{graph.name}: train"):
            findings.problems.append(problem)
    findings.raise_all()
    return graph


def labelled_graph(
    dataset: Dataset,
    edges: CscArrays,
    labels: np.ndarray,
    num_classes: int,
    splits: Splits,
    features: Tensor | SparseRows | None,
    notes: Iterable[str],
) -> Graph:
    """The checked graph of `dataset` with labels `[V]` and features `[V, D]`, which also notes bytes that differ."""
    graph = Graph(
        edges.indptr,
        edges.indices,
        features,
        torch.from_numpy(labels),
        num_classes,
        splits,
        name=dataset.name,
        notes=(*notes, *dataset.origin_notes()),
    )
    return checked(graph)


def no_edges(num_nodes: int) -> CscArrays:
    """Replacement of edges that could not be read, so that the rest of the dataset is checked at the same time."""
    dtype = torch.int32 if num_nodes < 1 << 31 else torch.int64
    return CscArrays(torch.zeros(num_nodes + 1, dtype=torch.int64), torch.empty(0, dtype=dtype), None, None)


def class_count(labels: np.ndarray, key: str) -> int:
    """Number of classes of integer labels from 0 on (negative = no label).

    Raises:
        DataError: a label is 2^31 or larger.
    """
    largest = int(labels.max()) if labels.size else -1
    if largest >= 1 << 31:
        raise DataError(Problem(key, largest, "classes must be below 2^31", "number the classes from 0 on"))
    return largest + 1


def is_believable(num_nodes: int, num_edges: int) -> bool:
    """Whether a graph of `num_edges` edges can have `num_nodes` vertices, if only one number in a file says so."""
    return num_nodes <= max(_ALWAYS_ALLOWED, _MAX_NODES_PER_EDGE * num_edges)


def check_memory(num_bytes: int, what: str) -> None:
    """Check that `num_bytes` fit in memory, before they are allocated; `what` names them.

    Large arrays leave `_RESERVE` free: for libraries that are loaded later, and for what is made of the arrays.

    Raises:
        DataError: less than `num_bytes` are available.
    """
    available = max(0, available_memory() - (_RESERVE if num_bytes > _RESERVE // 4 else 0))
    if num_bytes > available:
        shown = f"needs {num_bytes / 2**30:.1f} GiB"
        allowed = f"{available / 2**30:.1f} GiB of memory are available"
        raise DataError(Problem(what, shown, allowed, "use a smaller dataset (dataset.scale) or a larger machine"))
