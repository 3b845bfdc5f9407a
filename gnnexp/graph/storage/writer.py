"""Write a folder of named arrays atomically: afterwards the folder is complete, or it does not exist.

All files are written to a hidden folder next to the target, and flushed to the disk. Renaming the hidden folder is the
last step. A process that dies before it leaves a folder `.<name>.tmp-*`, which no code reads.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.files.disk import shortened, sync
from gnnexp.graph.storage.arrays import DTYPES, META, file_sha256

# Bytes that are copied through a memory map at a time, so that the page cache holds them and not the process.
_COPY_BYTES = 64 << 20


def staging_prefix(folder: Path) -> str:
    """The prefix of the names of temporary folders for `folder`."""
    return f".{shortened(folder.name)}.tmp-"


def make_staging(folder: Path) -> Path:
    """Make a temporary folder next to `folder`, with the permissions that umask and the parent folder give."""
    while True:
        staging = folder.with_name(staging_prefix(folder) + secrets.token_hex(4))
        try:
            staging.mkdir()  # `tempfile.mkdtemp` would make it private, and `chmod` would ignore the umask
        except FileExistsError:
            continue
        return staging


class ArrayWriter:
    """Context manager: `array` and `put` fill arrays, `finish` moves the folder into place. Without it all is removed.

    Args:
        folder: path of the folder; an existing folder is replaced if an `ArrayWriter` wrote it.

    Raises:
        DataError: `folder` exists and holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._staging: Path | None = None
        self._maps: dict[str, np.ndarray] = {}

    def __enter__(self) -> Self:
        check_replaceable(self.folder)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._staging = make_staging(self.folder)
        except OSError as error:
            raise DataError(
                Problem(
                    str(self.folder), error.strerror, "must be a place that can be written to", "give another folder"
                )
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._maps.clear()
        if self._staging is not None:
            shutil.rmtree(self._staging)
            self._staging = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays that exist so far, by name."""
        return {name: array.shape for name, array in self._maps.items()}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type | str) -> np.ndarray:
        """Make an array of zeros on the disk for the caller to fill; reserves its space.

        Raises:
            DataError: the disk has no room for the array.
        """
        assert self._staging is not None, "an ArrayWriter is used inside its `with`, before `finish`"
        assert name not in self._maps, f"{name} is written twice"
        kind = np.dtype(dtype).newbyteorder("<")
        assert kind.str in DTYPES, f"{name}: {kind.str} cannot be stored"
        path = self._staging / f"{name}.npy"
        self._maps[name] = _create(path, self.folder, shape, kind)
        return self._maps[name]

    def put(self, name: str, values: np.ndarray | Tensor) -> None:
        """Write a whole array."""
        source = values.numpy() if isinstance(values, Tensor) else values
        target = self.array(name, source.shape, source.dtype)
        rows = max(1, _COPY_BYTES // max(1, source.itemsize * math.prod(source.shape[1:])))
        for start in range(0, source.shape[0], rows):
            target[start : start + rows] = source[start : start + rows]

    def extra(self, name: str) -> Path:
        """The path of a further file of the folder, which the caller writes before `finish`."""
        assert self._staging is not None, "an ArrayWriter is used inside its `with`, before `finish`"
        return self._staging / name

    def finish(self, meta: Mapping[str, Any]) -> None:
        """Flush all arrays, write `meta.json`, and move the folder into place. Do not write to arrays afterwards."""
        assert self._staging is not None, "an ArrayWriter is used inside its `with`, and finished once"
        arrays = {}
        for name, array in self._maps.items():
            path = self._staging / f"{name}.npy"
            if isinstance(array, np.memmap):
                array.flush()
            sync(path)
            arrays[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": file_sha256(path)}
        write_json_to_disk(self._staging / META, {**meta, "arrays": arrays})
        move_into_place(self._staging, self.folder)
        self._staging = None


def _create(path: Path, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if math.prod(shape) == 0:
        np.save(path, np.empty(shape, dtype), allow_pickle=False)
        return np.empty(shape, dtype)
    try:
        with path.open("wb") as file:
            header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(int(size) for size in shape)}
            np.lib.format.write_array_header_1_0(file, header)
            offset = file.tell()
            # Without reserved blocks, a full disk would cause a bus error while the map is filled.
            os.posix_fallocate(file.fileno(), 0, offset + math.prod(shape) * dtype.itemsize)
    except OSError as error:
        needed = math.prod(shape) * dtype.itemsize
        raise DataError(
            Problem(
                str(folder),
                error.strerror,
                f"{path.stem} needs {needed / 2**30:.2f} GiB of disk",
                "make room there or choose another place",
            )
        ) from None
    return np.memmap(path, dtype, "r+", offset, shape)


def write_json_to_disk(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file and flush it to the disk."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    sync(path)


def check_replaceable(folder: Path) -> None:
    """Raise DataError if `folder` exists and is neither empty nor a folder that gnnexp wrote."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and ((folder / META).is_file() or not any(folder.iterdir())):
        return
    raise DataError(
        Problem(
            str(folder),
            "exists",
            "must be a new place, or a folder that gnnexp wrote",
            "give another folder, or remove this one yourself",
        )
    )


def move_into_place(staging: Path, folder: Path) -> None:
    """Rename the finished folder `staging` to `folder`; an existing `folder` is moved away, and removed at the end."""
    sync(staging)
    check_replaceable(folder)
    former = None
    if folder.exists():
        former = make_staging(folder)
        folder.replace(former)
    staging.replace(folder)
    sync(folder.parent)
    if former is not None:
        shutil.rmtree(former)
