"""What a dataset is: something that loads a `Graph` and knows the key of its content."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import psutil

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.validate import validate_graph

ROOT_VARIABLE = "GNNEXP_DATA"


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

    def options(self) -> dict[str, object]:
        """Constructor arguments that decide the graph, by name."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self" and name not in self.unkeyed}

    def key(self) -> str:
        """SHA-256 (hexadecimal) of kind, version, options and the bytes of the sources.

        Raises:
            DataError: a source file is missing.
        """
        digest = hashlib.sha256()
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        digest.update(json.dumps([kind, self.version, self.options()], sort_keys=True).encode())
        for path in self.sources():
            with path.open("rb") as file:
                digest.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    def generate(self, folder: Path) -> Graph | None:
        """Write the graph straight to `folder` in the on-disk format and open it; None if it can only be loaded.

        For graphs that need not fit in memory.
        """
        return None


def data_folder(path: str | None, *directories: str) -> Path:
    """Where the files of a dataset are: `path`, or the first of `directories` that is under `$GNNEXP_DATA`.

    Args:
        path: `dataset.path`, a folder or a file, or None.
        directories: names of the folder under the root, the usual one first.

    Raises:
        DataError: there is no such place; the mend names both ways.
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
        if candidate.exists():
            return candidate
    raise DataError(
        Problem("dataset.path", str(candidates[0]), "there is no such file or folder", where_to_put(directories[0]))
    )


def where_to_put(directory: str) -> str:
    """The mend of every missing file."""
    return f"set dataset.path to the folder of the files, or {ROOT_VARIABLE} to a root that holds {directory}/"


def existing_files(folder: Path, names: Iterable[str], directory: str) -> dict[str, Path]:
    """The files `names` in `folder`, by name.

    Raises:
        DataError: all that are missing, each by its path.
    """
    paths = {name: folder / name for name in names}
    missing = [
        Problem(str(path), "missing", "this file of the dataset is needed", where_to_put(directory))
        for path in paths.values()
        if not path.is_file()
    ]
    if missing:
        raise DataError(missing)
    return paths


def single_file(path: str | None, directory: str, file: str) -> Path:
    """The one file of a dataset: `path` itself if it is a file, else `file` in the dataset's folder.

    Raises:
        DataError: it is missing.
    """
    place = data_folder(path, directory)
    return place if place.is_file() else existing_files(place, [file], directory)[file]


def checked(graph: Graph, *, trainable: bool = True) -> Graph:
    """`graph`, if it keeps the rules.

    Args:
        graph: just loaded.
        trainable: whether it must have training vertices; edges alone can still be partitioned and sampled.

    Raises:
        DataError: every rule of `validate_graph` that it breaks.
    """
    problems = [
        problem
        for problem in validate_graph(graph, name=graph.name)
        if trainable or problem.key != f"{graph.name}: train"
    ]
    if problems:
        raise DataError(problems)
    return graph


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
