"""Reads files of DGL in a process of its own: DGL's reader is C++, and a damaged file may end its process.

The process writes plain arrays. `python -m gnnexp.datasets.formats.dgl.reader FOLDER` is that process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.datasets.formats.dgl.arrays import DglArrays, DglEdges, array_of_tensor, arrays_of_graph
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.regular import is_file, open_regular

_MAGIC = (0xDD2E4FF046B4A13F).to_bytes(8, "little")
_LEAST_BYTES = 4096  # DGL's header
# Memory of the process beyond that of DGL itself: a multiple of the files, and some more.
_BYTES_PER_BYTE, _MORE_BYTES = 4, 2 << 30
_REQUEST = "request.json"
_STACK = re.compile(r"Stack trace:|\s*\[bt\]")  # lines of DGL's errors below what they say


class ReadRequest(NamedTuple):
    """A file to read: the graph with the number `graph`, or (None) a dictionary of tensors."""

    path: Path
    graph: int | None = None


def is_graph_file(path: Path) -> bool:
    """Whether a file begins as those of `dgl.save_graphs`."""
    if not is_file(path):
        return False
    try:
        with open_regular(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def num_graphs(path: Path) -> int | None:
    """The number of graphs in a file of `dgl.save_graphs`; None for an older form, or a damaged file.

    The end of the file is the number of graphs, the place of each of them, and the size of all this in bytes.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        if size < _LEAST_BYTES:
            return None
        file.seek(size - 8)
        index = int.from_bytes(file.read(8), "little")
        if not 8 <= index <= size - 8:
            return None
        file.seek(size - 8 - index)
        count = int.from_bytes(file.read(8), "little")
    return count if index == 8 + 8 * count else None


def read_graph(path: Path, number: int) -> tuple[DglArrays, int | None]:
    """One graph of a file, and the number of its graphs if that is known.

    Raises:
        ConfigError: DGL is not installed.
        DataError: the file has no such graph, or DGL cannot read it.
    """
    count = num_graphs(path)
    if number < 0 or (count is not None and number >= count):
        last = "…" if count is None else str(count - 1)
        raise DataError(Problem("dataset.graph", number, f"{path} has the graphs 0 to {last}", "set dataset.graph=0"))
    [arrays] = read_files([ReadRequest(path, number)])
    assert isinstance(arrays, DglArrays)
    return arrays, count


def read_files(jobs: Sequence[ReadRequest]) -> list[Any]:
    """`DglArrays` for each graph, and a dictionary of arrays for each file of tensors.

    Raises:
        ConfigError: DGL is not installed.
        DataError: DGL cannot read a file.
    """
    if not is_installed("dgl"):
        raise ConfigError(missing_package("dataset", str(jobs[0].path), "dgl"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / _REQUEST).write_text(json.dumps([[str(request.path.absolute()), request.graph] for request in jobs]))
        done = run_reader(folder)
        answers = [_answer(folder, number) for number in range(len(jobs))]
        if done.returncode != 0:
            number = next((place for place, file in enumerate(answers) if not file.is_file()), 0)
            raise DataError(_unreadable(jobs[number], done))
        return [_read_back(folder, json.loads(file.read_text("utf-8"))) for file in answers]


def run_reader(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the process that reads, in the folder of its request."""
    command = [sys.executable, "-m", "gnnexp.datasets.formats.dgl.reader", str(folder)]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "DGLBACKEND": "pytorch"},
    )


def _unreadable(job: ReadRequest, done: subprocess.CompletedProcess[str]) -> Problem:
    lines = [line for line in done.stderr.splitlines() if line.strip() and not _STACK.match(line)]
    said = f"signal {-done.returncode}" if done.returncode < 0 else (lines[-1] if lines else "no message")
    maker = "dgl.data.utils.save_tensors" if job.graph is None else "dgl.save_graphs"
    return Problem(
        str(job.path),
        said[:200],
        "DGL cannot read this file: it is damaged, or of another version of DGL",
        f"get it again, or save it again with {maker}",
    )


def _answer(folder: Path, number: int) -> Path:
    return folder / f"{number}.json"


def _read_back(folder: Path, content: Mapping[str, Any]) -> Any:  # noqa: ANN401
    def arrays(names: Mapping[str, str]) -> dict[str, np.ndarray]:
        return {name: np.load(folder / file) for name, file in names.items()}

    if "tensors" in content:
        return arrays(content["tensors"])
    edges = [
        DglEdges(
            tuple(edges_of_type["types"]),
            np.load(folder / edges_of_type["source"]),
            np.load(folder / edges_of_type["destination"]),
            arrays(edges_of_type["data"]),
        )
        for edges_of_type in content["edges"]
    ]
    return DglArrays(
        content["counts"],
        {kind: arrays(own) for kind, own in content["nodes"].items()},
        edges,
        arrays(content["extra"]),
    )


# --- the process that reads --------------------------------------------------------------------------------------
class _Writer:
    """Writes arrays to files that have numbers as names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def array(self, values: np.ndarray) -> str:
        self.count += 1
        name = f"array_{self.count}.npy"
        np.save(self.folder / name, values)
        return name

    def arrays(self, data: Mapping[str, np.ndarray]) -> dict[str, str]:
        return {name: self.array(values) for name, values in data.items()}


def answer(folder: Path, *, limited: bool) -> None:
    """Read what the request in a folder asks for; `limited` bounds the memory of this process."""
    import dgl.data.utils

    jobs = [ReadRequest(Path(path), graph) for path, graph in json.loads((folder / _REQUEST).read_text("utf-8"))]
    if limited:
        _limit_memory(jobs)
    writer = _Writer(folder)
    for number, (path, graph) in enumerate(jobs):
        if graph is None:
            tensors = dgl.data.utils.load_tensors(str(path))
            document: dict[str, Any] = {
                "tensors": {name: writer.array(array_of_tensor(content)) for name, content in tensors.items()}
            }
        else:
            [content], extra = dgl.load_graphs(str(path), [graph])
            document = _saved(writer, arrays_of_graph(content))
            document["extra"] = {name: writer.array(array_of_tensor(content)) for name, content in extra.items()}
        _answer(folder, number).write_text(json.dumps(document), "utf-8")


def _saved(writer: _Writer, graph: DglArrays) -> dict[str, Any]:
    edges = [
        {
            "types": edges_of_type.types,
            "source": writer.array(edges_of_type.source),
            "destination": writer.array(edges_of_type.destination),
            "data": writer.arrays(edges_of_type.data),
        }
        for edges_of_type in graph.edges
    ]
    return {
        "counts": dict(graph.counts),
        "nodes": {kind: writer.arrays(own) for kind, own in graph.nodes.items()},
        "edges": edges,
    }


def _limit_memory(jobs: Sequence[ReadRequest]) -> None:
    """Sizes in a file may be false: the process may use a multiple of what its files have, and no more."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    size = sum(one.path.stat().st_size for one in jobs)
    resource.setrlimit(resource.RLIMIT_AS, (now + _BYTES_PER_BYTE * size + _MORE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    answer(Path(sys.argv[1]), limited=True)
