"""The artifact cache: graphs and partitions are made once and validated. All ranks of later runs map them.

The folders `<cache>/graphs/<name>-<key>` and `<cache>/partitions/<method>-<parts>-<key>` have content keys in their
names, so an artifact is never stale. If several processes prepare the same artifact, the first makes it, and the others
wait and open it.
"""

from __future__ import annotations

import errno
import glob
import json
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from gnnexp.datasets.base import Dataset
from gnnexp.errors import DataError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.cache import CACHE_VARIABLE
from gnnexp.files.disk import NO_ROOM, refusal, shortened, sign, try_lock
from gnnexp.files.pulse import Pulse, process_table
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, open_partition
from gnnexp.graph.parts import Parts, open_parts, write_parts
from gnnexp.graph.quality import quality, stream_quality
from gnnexp.graph.storage.arrays import fix
from gnnexp.graph.storage.format import open_graph, save_graph
from gnnexp.graph.storage.presample import Presample, open_presample
from gnnexp.graph.storage.writer import make_staging, move_into_place, staging_prefix, write_json_to_disk
from gnnexp.graph.stream import EdgeStream, GraphStream
from gnnexp.graph.validate import validate_graph, validate_ids
from gnnexp.partitioners.base import Partitioner, check_num_parts
from gnnexp.partitioners.streaming import StreamPartitioner
from gnnexp.preparation.presample import presample, presample_key
from gnnexp.preparation.unchanged import unchanged

Artifact = TypeVar("Artifact", Graph, Partition, Presample, Parts)
log = logging.getLogger(__name__)

QUALITY = "quality.json"
# A partition that takes less is made twice, and the second is kept. The time of the first includes loading kernels,
# which is about 50 ms for SPRING. SPRING partitions half a million edges in 10 ms.
_QUICK_S = 1.0
# A process that prepares something counts as frozen after this time without a sign of life. This is the default of
# `hardware.timeout_s`; no healthy process waits as long.
_FROZEN_S = 300.0
_POLL_S = 0.05
# 64 of the key's 256 bits: two names are likely to be equal only after about 2^32 artifacts.
_KEY_DIGITS = 16


def graph_folder(dataset: Dataset, cache: Path, key: str | None = None) -> Path:
    """The folder of the graph of `dataset`, which may not exist yet. With the `key`, no file is read."""
    key = dataset.key() if key is None else key
    return cache / "graphs" / f"{_slug(dataset.name)}-{key[:_KEY_DIGITS]}"


def prepare_graph(dataset: Dataset, cache: Path, key: str | None = None) -> tuple[Graph, Path]:
    """The validated, memory-mapped graph of `dataset` and its folder. It is made only if it does not exist yet.

    Args:
        dataset: what is read.
        cache: root of the artifact cache.
        key: content key of the dataset that the caller has computed (`Dataset.key()`); None: it is computed.

    Raises:
        DataError: problems of the dataset's files or graph, or a file changed while it was read. No file is left
            behind.
    """
    key = dataset.key() if key is None else key
    folder = graph_folder(dataset, cache, key)

    def make(staging: Path) -> None:
        with unchanged(dataset, key):
            read(staging)

    def read(staging: Path) -> None:
        graph = dataset.generate(staging)
        generated = graph is not None
        graph = dataset.load() if graph is None else graph
        # A graph without training vertices is allowed, because it can be partitioned. `graph_problems` refuses
        # it for runs.
        untrained = (f"{dataset.name}: train", "0 vertices")
        problems = [
            problem for problem in validate_graph(graph, name=dataset.name) if (problem.key, problem.value) != untrained
        ]
        DataError.raise_all(problems)
        if not generated:
            save_graph(graph, staging)

    return _prepare(folder, _open_sound, make), folder


def _open_sound(folder: Path) -> Graph:
    """The graph in `folder`. Its ids are checked again: kernels trust them, and disks can lose bits."""
    graph = open_graph(folder)
    DataError.raise_all(validate_ids(graph, name=str(folder)))
    return graph


def prepare_presample(
    experiment: Experiment,
    graph: Graph,
    graph_key: str,
    epochs: int,
    cache: Path,
    *,
    hops: bool = False,
    micro: bool = False,
) -> tuple[Presample, Path]:
    """Counts of `epochs` epochs of the training sampler (`gnnexp.preparation.presample`), and their folder.

    With `hops`, destinations are also counted by hop. With `micro`, the batches of each rank are sampled.
    """
    key = presample_key(experiment, graph_key, epochs, micro=micro)[:16] + "-hops" * hops
    folder = cache / "presamples" / f"{_slug(graph.name)}-{epochs}-{key}"

    def make(staging: Path) -> None:
        presample(experiment, graph, epochs, hops=hops, micro=micro).save(staging)

    return _prepare(folder, lambda path: open_presample(path, graph), make), folder


def partition_folder(
    partitioner: Partitioner, graph_key: str, num_parts: int, cache: Path, presample_key: str = ""
) -> Path:
    """The folder of the partition, which may not exist yet."""
    key = partitioner.key(graph_key, num_parts, presample_key)
    return cache / "partitions" / f"{_slug(partitioner.method)}-{num_parts}-{key[:_KEY_DIGITS]}"


def prepare_partition(
    partitioner: Partitioner,
    graph: Graph,
    graph_key: str,
    num_parts: int,
    cache: Path,
    sampled: tuple[Presample, Path] | None = None,
    watched: EdgeStream | None = None,
) -> tuple[Partition, Path]:
    """The partition of `graph` and its folder, with the report `quality.json`. It is made only if it does not exist.

    Args:
        partitioner: decides the owners.
        graph: validated graph (`prepare_graph`).
        graph_key: content key of the graph (`Dataset.key()`).
        num_parts: number of parts (`Partitioner.resolve`).
        cache: root of the artifact cache.
        sampled: pre-sampled counts that the partitioner needs, and their folder (`prepare_presample`).
        watched: edges of the graph that a `StreamPartitioner` reads instead of its own stream, to show progress.

    Raises:
        ConfigError: the partitioner cannot make this number of parts of the graph.
    """
    check_num_parts(num_parts, graph.num_nodes)
    counts, key = (None, "") if sampled is None else (sampled[0], sampled[1].name)
    folder = partition_folder(partitioner, graph_key, num_parts, cache, key)

    def open_it(path: Path) -> Partition:
        read_quality(path)
        return open_partition(path, graph=graph, graph_key=graph_key)

    def once(edges: EdgeStream | None = None) -> Partition:
        if edges is not None and isinstance(partitioner, StreamPartitioner):
            owners = partial(partitioner.assign_stream, edges, num_parts)
            return partitioner.timed(owners, graph, num_parts, graph_key)
        return partitioner.partition(graph, num_parts, graph_key, counts)

    def make(staging: Path) -> None:
        partition = once(watched)
        if partition.seconds < _QUICK_S:
            partition = once()
        partition.save(staging)
        write_json_to_disk(staging / QUALITY, quality(graph, partition) | partition.cost | dict(partition.facts))
        if partitioner.reads_file and partition_folder(partitioner, graph_key, num_parts, cache, key) != folder:
            raise DataError(
                Problem(
                    "partitioner.path",
                    partitioner.reads_file,
                    "changed while it was read, so nothing was kept",
                    "repeat the command when no program writes this folder any more",
                )
            )

    return _prepare(folder, open_it, make), folder


def prepare_stream_partition(
    partitioner: StreamPartitioner, dataset: Dataset, key: str, edges: EdgeStream, num_parts: int, cache: Path
) -> tuple[Partition, Path]:
    """As `prepare_partition`, from a stream of edges without a graph.

    Args:
        partitioner: decides the owners.
        dataset: the dataset of the edges.
        key: content key of the dataset, from before its edges were opened.
        edges: edges of the dataset.
        num_parts: number of parts.
        cache: root of the artifact cache.

    Raises:
        DataError: also if a file of the dataset changed while it was read.
    """
    data_key, key = key, f"stream:{key}"
    folder = partition_folder(partitioner, key, num_parts, cache)

    def open_it(path: Path) -> Partition:
        read_quality(path)
        return open_partition(path, graph=edges, graph_key=key)

    def make(staging: Path) -> None:
        with unchanged(dataset, data_key):
            partition = partitioner.partition_stream(edges, num_parts, key)
            report = stream_quality(edges, partition)
        partition.save(staging)
        write_json_to_disk(staging / QUALITY, report | partition.cost | dict(partition.facts))

    return _prepare(folder, open_it, make), folder


def prepare_parts(
    graph: Graph, partition: Partition, partition_folder: Path, cache: Path, *, full_neighbors: bool
) -> tuple[Parts, Path]:
    """The parts of a prepared partition as separate graphs, and their folder. They are cut only if they do not exist.

    If a process is killed while it cuts, no incomplete parts are used later: the next process starts again.
    """
    kind = "full" if full_neighbors else "own"
    folder = cache / "parts" / f"{partition_folder.name}-{kind}"

    def open_sound(path: Path) -> Parts:
        parts = open_parts(path)
        for part in range(len(parts.sizes)):
            DataError.raise_all(validate_ids(parts.open(part).graph, name=str(path)))
        return parts

    def make(staging: Path) -> None:
        write_parts(graph, GraphStream(graph), partition, staging, full_neighbors=full_neighbors)

    return _prepare(folder, open_sound, make), folder


def read_quality(folder: Path) -> dict[str, float]:
    """The quality report (`gnnexp.graph.quality`) of the partition in `folder`, with its cost and the method's facts.

    Raises:
        DataError: the report is missing or damaged.
    """
    path = folder / QUALITY
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(Problem(str(path), str(error), "must be the report of a partition", fix(folder))) from None
    if not isinstance(report, dict) or not all(isinstance(value, int | float) for value in report.values()):
        raise DataError(Problem(str(path), str(report)[:80], "must map names to numbers", fix(folder)))
    return report


def _slug(name: str) -> str:
    """`name` in a form that is safe in a folder name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60] or "unnamed"


def _prepare(folder: Path, open_it: Callable[[Path], Artifact], make: Callable[[Path], None]) -> Artifact:
    """Open the artifact in `folder`. If it is missing or damaged, it is made first.

    Raises:
        DataError: the disk is full. No file is left behind.
    """
    if folder.exists() and (artifact := _open_or_say(folder, open_it)) is not None:
        return artifact
    with _lock(folder):
        # Another process may have made the artifact while this process waited.
        if folder.exists() and (artifact := _open_or_say(folder, open_it, say=False)) is not None:
            return artifact
        _remove_leftovers(folder)
        try:
            with _staging(folder) as work:
                make(work / folder.name)
                if folder.exists():
                    _move_away(folder, work / "damaged")
                move_into_place(work / folder.name, folder)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DataError(
                Problem(
                    str(folder),
                    error.strerror,
                    "the artifact cache needs room for it",
                    f"make room there, or set {CACHE_VARIABLE} to another disk",
                )
            ) from None
    return open_it(folder)


def _open_or_say(folder: Path, open_it: Callable[[Path], Artifact], *, say: bool = True) -> Artifact | None:
    try:
        return open_it(folder)
    except DataError as error:
        for path in (folder, *folder.glob("*")):
            if not os.access(path, os.R_OK, effective_ids=True):
                raise _of_another_user(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES))) from None
        if say:
            log.warning("the prepared artifact in %s is damaged and is made again:\n%s", folder, error)
        return None


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder next to `folder` for what is being made. Its rights are those of the cache, so a group can remove it."""
    work = make_staging(folder)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move_away(folder: Path, place: Path) -> None:
    """Move a damaged artifact.

    Raises:
        DataError: it belongs to somebody else, and only its owner may move it.
    """
    try:
        folder.replace(place)
    except PermissionError as error:
        raise DataError(
            Problem(
                str(folder),
                error.strerror,
                f"it is damaged and belongs to {_owner(folder)}",
                f"have it removed by them, or set {CACHE_VARIABLE} to another folder",
            )
        ) from None


def _remove_leftovers(folder: Path) -> None:
    """Remove files that a killed process left of this artifact. Only the process that holds the lock calls this.

    What another user left may stay. It is in nobody's way, since every process has a staging folder of its own.
    """
    for leftover in folder.parent.glob(f"{glob.escape(staging_prefix(folder))}*"):
        shutil.rmtree(leftover, ignore_errors=True)
        if leftover.exists():
            log.warning("%s was left by a process of %s, who alone can remove it", leftover, _owner(leftover))


def _of_another_user(path: Path, error: OSError) -> DataError:
    return DataError(
        Problem(
            str(path),
            error.strerror,
            f"belongs to {_owner(path)}, and others may not read it",
            f"have them share it (chmod, and umask 002 from now on), or set {CACHE_VARIABLE} to another folder",
        )
    )


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except (KeyError, OSError):  # a user without a name here, or a folder that is just being removed
        return "another user"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the artifact's lock file, and remove it afterwards. The system releases the lock if the process dies."""
    path = folder.with_name(f".{shortened(folder.name)}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _acquire(path)
    except OSError as error:
        if isinstance(error, PermissionError) and os.path.lexists(path):
            raise _of_another_user(path, error) from None
        refused = refusal(error)
        why = f": {refused.allowed}" if refused is not None else ""
        raise DataError(
            Problem(
                str(path.parent),
                error.strerror,
                f"the artifact cache must be writable{why}",
                f"set {CACHE_VARIABLE} to a writable folder",
            )
        ) from None
    try:
        yield
    finally:
        with suppress(PermissionError):  # another user's lock in a folder where only owners remove files
            path.unlink()
        os.close(handle)


def _acquire(path: Path) -> int:
    """Lock `path`. Waits as long as the process that holds the lock is alive.

    Raises:
        DataError: the process that holds the lock is frozen.
    """
    pulses: dict[int, Pulse] = {}
    said = False
    while (handle := try_lock(path)) is None:
        table, host, pid = _holder(path)
        if not said:
            who = f"process {pid} of {host}" if pid else "another process"
            log.warning("%s is preparing %s: waiting for it", who, path.parent / path.stem.lstrip("."))
            said = True
        if table == process_table():  # else the number means another process in this process table
            silent_s = pulses.setdefault(pid, Pulse(pid)).silent_s()
            if silent_s > _FROZEN_S:
                raise DataError(
                    Problem(
                        str(path),
                        f"process {pid}",
                        f"prepares this artifact, but gives no sign of life for {silent_s:.0f} s",
                        f"end it (kill -9 {pid}), then repeat the command",
                    )
                )
        time.sleep(_POLL_S)
    sign(handle, f"{process_table()} {platform.node()} {os.getpid()}")
    return handle


def _holder(path: Path) -> tuple[str, str, int]:
    """Process table, host and number of the process that holds a lock; ("", "", 0) if it has not written them yet."""
    try:
        table, host, pid = path.read_text(encoding="utf-8").split()
        return table, host, int(pid)
    except (OSError, ValueError):
        return "", "", 0
