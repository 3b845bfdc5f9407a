"""Read a folder of named arrays: `meta.json` lists the arrays, and one `.npy` file holds each of them.

The content of a folder is never trusted. Names cannot point outside of the folder. Memory is mapped or allocated only
after the size of the file was compared with the sizes in its header. Problems of all arrays are reported at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.graph.storage.npy import NpyHeader, file_header, is_size, map_array

Verify = Literal["none", "sizes", "checksums"]

META = "meta.json"
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8")
# A graph's meta.json has about 4 KiB; a much larger file is something else.
MAX_META_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class ArraySpec:
    """The entry of one array in `meta.json`.

    Attributes:
        dtype: numpy's name of the data type, with the byte order (`<i8`).
        shape: size of each dimension.
        sha256: checksum of the whole `.npy` file, hexadecimal.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class ArrayFolder:
    """A folder with a `meta.json` that was read and is well formed.

    Attributes:
        folder: path of the folder.
        meta: the content of `meta.json` without `arrays`.
        specs: entries of the arrays by name.
    """

    folder: Path
    meta: Mapping[str, Any]
    specs: Mapping[str, ArraySpec]

    def tensors(self, *, mmap: bool = True, verify: Verify = "sizes") -> dict[str, Tensor]:
        """All arrays by name. Never write to a memory-mapped array: the process would be killed.

        Raises:
            DataError: arrays are missing, or differ from their entries in `meta.json`.
        """
        tensors: dict[str, Tensor] = {}
        problems: list[Problem] = []
        for name, spec in self.specs.items():
            try:
                tensors[name] = _load(self.folder / f"{name}.npy", spec, mmap=mmap, verify=verify)
            except DataError as error:
                problems += error.problems
        DataError.raise_all(problems)
        return tensors


def fix(folder: Path) -> str:
    """The fix for every damage of a stored folder."""
    return f"delete {folder} and let it be written again"


def read_folder(folder: Path, kind: str, schema: int) -> ArrayFolder:
    """Read `meta.json` of a folder that holds a `kind` (`graph`, `partition`) in a schema from 1 to `schema`.

    Raises:
        DataError: the file is missing or not well formed, or has another kind or a later schema.
    """
    path = folder / META
    meta = _read_json(path, kind)
    if meta.get("kind") != kind:
        stored_kind = str(meta.get("kind"))[:80]
        raise DataError(Problem(str(path), stored_kind, f"must be of kind {kind!r}", f"give the folder of a {kind}"))
    version = meta.get("schema")
    if type(version) is not int or not 1 <= version <= schema:
        raise DataError(
            Problem(
                str(path),
                version,
                f"schema must be 1 to {schema}",
                "upgrade gnnexp if it was written by a later version, else " + fix(folder),
            )
        )
    arrays = meta.pop("arrays", None)
    if not isinstance(arrays, dict):
        raise DataError(Problem(str(path), type(arrays).__name__, "arrays must be a mapping", fix(folder)))
    problems: list[Problem] = []
    specs: dict[str, ArraySpec] = {}
    for name, entry in arrays.items():
        spec = _parse_spec(name, entry)
        if isinstance(spec, ArraySpec):
            specs[name] = spec
        else:
            problems.append(Problem(f"{path}: {name[:80]}", str(entry)[:80], spec, fix(folder)))
    DataError.raise_all(problems)
    return ArrayFolder(folder, meta, specs)


def _read_json(path: Path, kind: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_META_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise DataError(
            Problem(
                str(path), str(error)[:200], f"must be the meta.json of a {kind}", f"give a folder that holds a {kind}"
            )
        ) from None
    if len(text) > MAX_META_BYTES:
        raise DataError(Problem(str(path), f"more than {MAX_META_BYTES} bytes", "must be small", fix(path.parent)))
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be valid JSON", fix(path.parent))) from None
    if not isinstance(meta, dict):
        raise DataError(Problem(str(path), type(meta).__name__, "must be a JSON object", fix(path.parent)))
    return meta


def _parse_spec(name: str, entry: object) -> ArraySpec | str:
    """One entry of `arrays`, or the rule that it breaks."""
    if not _NAME.fullmatch(name):
        return "names of arrays are lower case words without any path"
    if not isinstance(entry, dict):
        return "must be an object with dtype, shape, sha256"
    dtype, shape, digest = entry.get("dtype"), entry.get("shape"), entry.get("sha256")
    if dtype not in DTYPES:
        return f"dtype must be one of {', '.join(DTYPES)}"
    if not isinstance(shape, list) or not 1 <= len(shape) <= 2 or not all(map(is_size, shape)):
        return "shape must be one or two sizes from 0 on"
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        return "sha256 must have 64 hexadecimal digits"
    return ArraySpec(dtype, tuple(shape), digest)


def _load(path: Path, spec: ArraySpec, *, mmap: bool, verify: Verify) -> Tensor:
    try:
        header = file_header(path)
    except DataError as error:
        raise DataError([replace(problem, fix=fix(path.parent)) for problem in error.problems]) from None
    dtype, shape, problems = header.dtype.str, header.shape, []
    if dtype not in DTYPES or (header.fortran and len(shape) > 1):
        shown = f"{dtype} {list(shape)}{' in Fortran order' if header.fortran else ''}"
        allowed = f"must be numbers in C order, of dtype {', '.join(DTYPES)}"
        problems.append(Problem(str(path), shown, allowed, fix(path.parent)))
    elif verify != "none" and (dtype, shape) != (spec.dtype, spec.shape):
        problems.append(
            Problem(
                str(path),
                f"{dtype} {list(shape)}",
                f"must be {spec.dtype} {list(spec.shape)} as {META} says",
                fix(path.parent),
            )
        )
    elif verify == "checksums" and (digest := file_sha256(path)) != spec.sha256:
        problems.append(
            Problem(
                str(path),
                f"sha256 {digest[:16]}…",
                f"must be {spec.sha256[:16]}…: bytes have changed",
                fix(path.parent),
            )
        )
    DataError.raise_all(problems)
    return _tensor(path, header, mmap=mmap)


def _tensor(path: Path, header: NpyHeader, *, mmap: bool) -> Tensor:
    count = math.prod(header.shape)
    if count and not mmap:
        flat = np.fromfile(path, header.dtype, count, offset=header.offset)
        return torch.from_numpy(flat.reshape(header.shape))
    with warnings.catch_warnings():
        # torch has no read-only tensors. All code of gnnexp may read a graph, and none may write to it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(map_array(path, header))


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in small pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
