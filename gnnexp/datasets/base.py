"""What a dataset is: something that loads a `Graph` and knows the key of its content."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil
import torch

from gnnexp.errors import DataError, Problem
from gnnexp.files.findings import Findings
from gnnexp.files.regular import is_file, open_regular
from gnnexp.graph.build import CscArrays
from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import EdgeStream
from gnnexp.graph.validate import validate_graph
from gnnexp.provenance.code import code_key
from gnnexp.provenance.moved import first_name

ROOT_VARIABLE = "GNNEXP_DATA"
# A quarter of a second of hashing.
_LARGE_BYTES, _START_BYTES = 256 << 20, 4096
_MAGIC = {".npy": b"\x93NUMPY", ".npz": b"PK", ".gz": b"\x1f\x8b"}
_TEXTS = (".tsv", ".csv", ".txt", ".index")
# More vertices than this many per edge are a damaged count, or ids that were never renumbered (hashes, user numbers).
_MAX_NODES_PER_EDGE, _ALWAYS_ALLOWED = 64, 1 << 20


class Dataset(ABC):
    """A graph with features, labels and splits, loaded from files or generated.

    A subclass stores every constructor argument under its own name, so that `options` finds it.

    Attributes:
        version: raised when the same options and files give another graph than before.
        unkeyed: constructor arguments that never change the graph (where the files are, size of a buffer).
    """

    name: str
    version: ClassVar[int] = 1
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path"})

    @abstractmethod
    def load(self) -> Graph:
        """The graph, in memory.

        Raises:
            DataError: a file is missing, damaged, or not what it should be; all problems at once where possible.
        """

    def sources(self) -> list[Path]:
        """The files whose bytes decide the graph; empty for a generated one.

        Raises:
            DataError: one is missing.
        """
        return []

    def missing(self) -> list[Problem]:
        """What is wrong with the places of the files, found without fetching or reading any."""
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
        """SHA-256 (hexadecimal) of kind, version, options, code and the bytes of the sources.

        Raises:
            DataError: source files are missing or cannot be read.
        """
        digest = hashlib.sha256()
        kind = first_name(f"{type(self).__module__}.{type(self).__qualname__}")
        digest.update(json.dumps([kind, self.version, self.options()], sort_keys=True).encode())
        digest.update(code_key(type(self)).encode())
        unreadable = []
        for path in self.sources():
            try:
                with open_regular(path) as file:
                    if problem := _unlike(path, file):
                        unreadable.append(problem)
                        continue
                    digest.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
            except OSError as error:
                fix = "make it a file that you may read"
                unreadable.append(Problem(str(path), error.strerror, "this file of the dataset is needed", fix))
        DataError.raise_all(unreadable)
        return digest.hexdigest()

    @property
    def at_hand(self) -> bool:
        """Whether it is read from files that are there: its mistakes are then told with the configuration's."""
        return True

    def stream(self) -> EdgeStream | None:
        """Its edges without the graph in memory, None if it is read as a whole.

        Raises:
            DataError: a file is missing or damaged.
        """
        return None

    def generate(self, folder: Path) -> Graph | None:
        """Write the graph straight to `folder` in the on-disk format and open it; None if it can only be loaded.

        For graphs that need not fit in memory.
        """
        return None


def _unlike(path: Path, file: BufferedReader) -> Problem | None:
    """What shows at the start of a large file that it is not of the kind that its name says; nobody waits for its hash.

    Small files are left to their readers, who can say more.
    """
    if os.fstat(file.fileno()).st_size < _LARGE_BYTES:
        return None
    start = file.peek(_START_BYTES)[:_START_BYTES]
    suffix = path.suffix.lower()
    nothing = suffix != ".bin" and not start.strip(b"\0")  # numbers without a header may begin with zeros
    if not nothing and start.startswith(_MAGIC.get(suffix, b"")) and not (suffix in _TEXTS and b"\0" in start):
        return None
    allowed = f"must be a {path.suffix} file, and does not begin as one"
    return Problem(str(path), f"{start[:8].hex(' ')} …", allowed, "get the file again, or correct the path")


def data_folder(path: str | None, *directories: str) -> Path:
    """Where the files of a dataset are: `path`, or the first of `directories` that is under `$GNNEXP_DATA`.

    Args:
        path: `dataset.path`, a folder or a file, or None.
        directories: names of the folder under the root, the usual one first.

    Raises:
        DataError: there is no such place; the fix names both ways.
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
            fix = "give yourself the right to read it, or correct the path"
            raise DataError(Problem("dataset.path", str(candidate), f"cannot be read: {error}", fix)) from None
    raise DataError(
        Problem("dataset.path", str(candidates[0]), "there is no such file or folder", where_to_put(directories[0]))
    )


def where_to_put(directory: str) -> str:
    """The fix of every missing file."""
    return f"set dataset.path to the folder of the files, or {ROOT_VARIABLE} to a root that holds {directory}/"


def existing_files(folder: Path, names: Iterable[str], directory: str) -> dict[str, Path]:
    """The files `names` in `folder`, by name.

    Raises:
        DataError: all that are missing, each by its path.
    """
    if not folder.is_dir():
        fix = where_to_put(directory)
        raise DataError(Problem("dataset.path", str(folder), "must be the folder of the dataset's files", fix))
    paths = {name: folder / name for name in names}
    require(paths.values(), where_to_put(directory))
    return paths


def require(paths: Iterable[Path], fix: str) -> None:
    """All of these files have to be there.

    Raises:
        DataError: all that are missing.
    """
    DataError.raise_all([Problem(str(path), "missing", "this file of the dataset is needed", fix)
                         for path in paths if not is_file(path)])


def single_file(path: str | None, directory: str, file: str) -> Path:
    """The one file of a dataset: `path` itself if it is a file, else `file` in the dataset's folder.

    Raises:
        DataError: it is missing.
    """
    place = data_folder(path, directory)
    return place if place.is_file() else existing_files(place, [file], directory)[file]


def checked(graph: Graph, *, trainable: bool = True, findings: Findings | None = None) -> Graph:
    """`graph`, if it keeps the rules.

    Args:
        graph: just loaded; what could not be read is left out (`no_edges`).
        trainable: whether it must have training vertices; edges alone can still be partitioned and sampled.
        findings: problems met while loading; with any, only those rules are judged that what is left can break.

    Raises:
        DataError: every rule of `validate_graph` that it breaks, after the findings.
    """
    findings = findings or Findings()
    unread = bool(findings.problems)
    for problem in validate_graph(graph, name=graph.name):
        absent = problem.value in ("none", "0 vertices")  # as it must be where labels or splits could not be read
        if not (absent and unread) and (trainable or problem.key != f"{graph.name}: train"):
            findings.problems.append(problem)
    findings.raise_all()
    return graph


def no_edges(num_nodes: int) -> CscArrays:
    """Stand-in for edges that cannot be used, so that the rest of a dataset is judged in the same go."""
    dtype = torch.int32 if num_nodes < 1 << 31 else torch.int64
    return CscArrays(torch.zeros(num_nodes + 1, dtype=torch.int64), torch.empty(0, dtype=dtype), None, None)


def class_count(labels: np.ndarray, key: str) -> int:
    """C of integer labels from 0 on (negative = none).

    Raises:
        DataError: no numbering of classes is that large.
    """
    largest = int(labels.max()) if labels.size else -1
    if largest >= 1 << 31:
        raise DataError(Problem(key, largest, "classes must be below 2^31", "number the classes from 0 on"))
    return largest + 1


def believable(num_nodes: int, num_edges: int) -> bool:
    """Whether a graph of so many edges can have so many vertices, if nothing but one number in a file says so."""
    return num_nodes <= max(_ALWAYS_ALLOWED, _MAX_NODES_PER_EDGE * num_edges)


def check_memory(num_bytes: int, what: str) -> None:
    """Refuse what cannot fit in memory before any of it is allocated.

    Raises:
        DataError: less than `num_bytes` are available.
    """
    available = psutil.virtual_memory().available
    if num_bytes > available:
        found = f"needs {num_bytes / 2**30:.1f} GiB"
        allowed = f"{available / 2**30:.1f} GiB of memory are available"
        raise DataError(Problem(what, found, allowed, "use a smaller dataset (dataset.scale) or a larger machine"))
