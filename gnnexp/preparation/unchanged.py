"""Whether the files of a dataset stay as they are while something is made of them.

The key of an artifact is made of the bytes before they are read. If a file changes in between, the artifact has other
content than its key says, and every later run on the old bytes would get it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gnnexp.datasets.base import Dataset
from gnnexp.errors import DataError, Problem

_SHOWN = 4


@contextmanager
def unchanged(dataset: Dataset, key: str | None) -> Iterator[None]:
    """Refuse what the block makes of the files of `dataset` if a file changes meanwhile.

    Args:
        dataset: the dataset that the block reads.
        key: its key before the block. The key is computed again at the end, so all bytes are hashed again. None: only
            the times of the files are compared, for results that are shown and not kept.

    Raises:
        DataError: a file was written, replaced, added or removed; also if this made the block fail.
    """
    before = _written(dataset)
    try:
        yield
    except DataError:  # half a file may look like a damaged one
        _compare(dataset, before)
        raise
    _compare(dataset, before)
    if key is not None and dataset.key() != key:
        raise _changed(dataset, sorted(before))


def _written(dataset: Dataset) -> Mapping[Path, int]:
    """The time of the last change of each file, in nanoseconds; -1 if it cannot be asked for."""
    return {path: _time_of(path) for path in dataset.sources()}


def _time_of(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1


def _compare(dataset: Dataset, before: Mapping[Path, int]) -> None:
    """Refuse files that were written since `before`: their bytes may be the old ones again.

    Raises:
        DataError: names them.
    """
    now = _written(dataset)
    if differing := sorted(path for path in {**before, **now} if before.get(path) != now.get(path)):
        raise _changed(dataset, differing)


def _changed(dataset: Dataset, files: list[Path]) -> DataError:
    names = ", ".join(str(path) for path in files[:_SHOWN])
    more = f" and {len(files) - _SHOWN} more files" if len(files) > _SHOWN else ""
    return DataError(
        Problem(
            "dataset",
            dataset.name,
            f"changed while it was read ({names}{more}), so nothing was kept",
            "repeat the command when no program writes these files any more",
        )
    )
