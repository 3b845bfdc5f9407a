"""Reading the pickles of published datasets without executing anything in them.

A pickle is a program. Here its opcodes are scanned first against an allow-list; then it is run with every global
replaced by an inert stand-in of ours, so neither numpy nor scipy ever sees its contents. What comes out is plain
Python data, `PickledArray` and `PickledCsr`, which `as_array` and `as_csr` turn into arrays after checking sizes.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse

from gnnexp.errors import DataError, Problem

# The largest published one has 4 MiB; everything in a pickle is held in memory several times.
MAX_PICKLE_BYTES = 1 << 31

_OPCODES = frozenset(
    {
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "NEWOBJ",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "EMPTY_LIST",
        "LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "MEMOIZE",
    }
)
_MEMO_STORES = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_MEMO_READS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES = frozenset({"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
# Published ones have 24. Python hashes tuples by recursion: a million nested ones would crash the process.
_MAX_TUPLES = 100
_NUMBERS = frozenset(f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)) - {"f1"} | {"b1"}


class _Inert:
    """A stand-in that takes no state: BUILD on it (or on the class itself) fails instead of setting attributes."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"{type(self).__name__} takes no state")


class PickledDtype(_Inert):
    """`numpy.dtype(text)` with its byte order."""

    __slots__ = ("order", "text")
    text: str
    order: str

    def __new__(cls, text: object, *_: object) -> Self:
        """Of a type name such as `f4`; lists that share their items would be endless as text."""
        if not isinstance(text, str):
            raise pickle.UnpicklingError("malformed dtype")
        dtype = super().__new__(cls)
        dtype.text, dtype.order = text, "<"
        return dtype

    def __setstate__(self, state: object) -> None:
        """Take the byte order out of numpy's state tuple."""
        if isinstance(state, tuple) and len(state) > 1 and isinstance(state[1], str):
            self.order = state[1]


class PickledArray(_Inert):
    """The state of a `numpy.ndarray`, as it stands in the pickle."""

    __slots__ = ("data", "dtype", "fortran", "shape")
    shape: tuple[int, ...]
    dtype: PickledDtype
    fortran: bool
    data: bytes | str | list[object]

    def __new__(cls, *_: object) -> Self:
        """An empty one, however it is called for: NEWOBJ passes `__init__` by."""
        array = super().__new__(cls)
        array.shape, array.dtype, array.fortran, array.data = (0,), PickledDtype("u1"), False, b""
        return array

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401
        """Take numpy's `(version, shape, dtype, is_fortran, data)`."""
        _, shape, dtype, fortran, data = state
        sizes_ok = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not sizes_ok or not isinstance(dtype, PickledDtype) or not isinstance(data, bytes | str | list):
            raise pickle.UnpicklingError("malformed array")
        self.shape, self.dtype, self.fortran, self.data = shape, dtype, bool(fortran), data


class PickledCsr(_Inert):
    """The attributes of a `scipy.sparse.csr_matrix`, as they stand in the pickle."""

    __slots__ = ("state",)
    state: dict[object, object]

    def __new__(cls, *_: object) -> Self:
        """An empty one."""
        matrix = super().__new__(cls)
        matrix.state = {}
        return matrix

    def __setstate__(self, state: object) -> None:
        """Take the attribute dictionary."""
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("malformed sparse matrix")
        self.state = state


class _Reconstruct(_Inert):
    """`numpy.core.multiarray._reconstruct`: an empty array that BUILD fills."""

    def __new__(cls, *_: object) -> Self:
        return PickledArray()  # type: ignore[return-value]


class _DefaultDict(_Inert):
    """`collections.defaultdict`: a plain dictionary."""

    def __new__(cls, *_: object) -> Self:
        return {}  # type: ignore[return-value]


class _Encode(_Inert):
    """`_codecs.encode`, of text to latin-1 bytes only."""

    def __new__(cls, text: object, encoding: object) -> Self:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("_codecs.encode of something else than text to latin-1")
        return text.encode("latin-1")  # type: ignore[return-value]


class _List(_Inert):
    """`list`, named as the factory of a defaultdict."""

    def __new__(cls, *_: object) -> Self:
        return []  # type: ignore[return-value]


_GLOBALS: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledDtype,
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("scipy.sparse._csr", "csr_matrix"): PickledCsr,
    ("collections", "defaultdict"): _DefaultDict,
    ("__builtin__", "list"): _List,
    ("builtins", "list"): _List,
    ("_codecs", "encode"): _Encode,
}


class _Scan:
    """What is refused of a pickle's opcodes before any of them is run.

    Args:
        size: bytes of the pickle.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._tuples = 0
        self._tuple_on_top = False
        self._stored: set[int] = set()
        self._stored_tuples: set[int] = set()

    def step(self, name: str, argument: object) -> None:
        """Judge the next opcode.

        Raises:
            UnpicklingError: it is not allowed, or would cost far more memory or time than the pickle has bytes.
        """
        if name not in _OPCODES:
            raise pickle.UnpicklingError(f"it uses the opcode {name}")
        if name in _TUPLES:
            self._tuples += 1
        if self._tuples > _MAX_TUPLES:
            raise pickle.UnpicklingError(f"it has more than {_MAX_TUPLES} tuples")
        if name in _MEMO_STORES:
            self._store(len(self._stored) if name == "MEMOIZE" else argument)
        elif name in _MEMO_READS and argument in self._stored_tuples:
            # A tuple of itself twice, forty times over, takes for ever to hash.
            raise pickle.UnpicklingError("it uses a tuple twice")
        elif name not in ("PROTO", "FRAME"):
            self._tuple_on_top = name in _TUPLES

    def _store(self, index: object) -> None:
        # The memo of the C unpickler is an array as long as the largest index.
        if not isinstance(index, int) or index > self._size:
            raise pickle.UnpicklingError(f"memo index {index}")
        self._stored.add(index)
        if self._tuple_on_top:
            self._stored_tuples.add(index)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> type:
        """The stand-in for an allowed global; everything else is refused."""
        try:
            return _GLOBALS[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}") from None


@dataclass(frozen=True)
class Pickles:
    """A sequence of pickles in one byte string.

    Attributes:
        content: the bytes.
        key: the file that errors name.
    """

    content: bytes
    key: str

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """The content of a file, if it is not too large to be held in memory.

        Raises:
            DataError: it is.
        """
        size = path.stat().st_size
        if size > MAX_PICKLE_BYTES:
            raise cls(b"", str(path))._refused(f"{size} bytes")
        return cls(path.read_bytes(), str(path))

    def load(self) -> Any:  # noqa: ANN401
        """The first one."""
        return self.load_all(1)[0]

    def load_all(self, count: int) -> list[Any]:
        """The first `count` ones (legacy torch files have several in a row).

        Raises:
            DataError: it is not a pickle, is truncated, or wants anything that is not on the allow-list.
        """
        if len(self.content) > MAX_PICKLE_BYTES:
            raise self._refused(f"{len(self.content)} bytes")
        stream = io.BytesIO(self.content)
        try:
            return [self._load_next(stream) for _ in range(count)]
        except Exception as error:
            # Damaged bytes can raise anything at all in the unpickler; none of it is our bug.
            raise self._refused(str(error)[:200] or type(error).__name__) from None

    def _load_next(self, stream: io.BytesIO) -> object:
        start = stream.tell()
        scan = _Scan(len(self.content))
        for opcode, argument, _ in pickletools.genops(stream):
            scan.step(opcode.name, argument)
        end = stream.tell()
        return _Unpickler(io.BytesIO(self.content[start:end]), encoding="latin1").load()

    def _refused(self, why: str) -> DataError:
        mend = "get the file again from its publisher; nothing in it was executed"
        return DataError(Problem(self.key, why, "a pickle of plain arrays, sparse matrices, lists and dicts", mend))


def as_array(value: object, key: str) -> np.ndarray:
    """The numeric array that `value` describes, its declared shape checked against its bytes first.

    Raises:
        DataError: it is none, or its sizes contradict each other.
    """
    if not isinstance(value, PickledArray):
        raise _malformed(key, type(value).__name__, "a numeric array")
    if value.dtype.text not in _NUMBERS or value.dtype.order not in "<>|=" or isinstance(value.data, list):
        raise _malformed(key, value.dtype.text[:20], "an array of numbers")
    dtype = np.dtype(value.dtype.order + value.dtype.text)
    raw = value.data.encode("latin-1") if isinstance(value.data, str) else value.data
    if len(raw) != math.prod(value.shape) * dtype.itemsize:
        raise _malformed(key, f"{len(raw)} bytes", f"the bytes of {dtype} {list(value.shape)}")
    array = np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))
    return array.reshape(value.shape, order="F" if value.fortran else "C")


def as_object(value: object, key: str) -> object:
    """The one object in a 0-d object array.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(value, PickledArray) or value.shape != () or not isinstance(value.data, list):
        raise _malformed(key, type(value).__name__, "a 0-d object array")
    if len(value.data) != 1:
        raise _malformed(key, f"{len(value.data)} objects", "one object")
    return value.data[0]


def as_csr(value: object, key: str) -> scipy.sparse.csr_array:
    """The sparse matrix that `value` describes, with sorted, unique columns per row.

    Raises:
        DataError: it is none, or row pointers, columns and shape contradict each other.
    """
    if not isinstance(value, PickledCsr):
        raise _malformed(key, type(value).__name__, "a sparse matrix")
    shape = value.state.get("_shape")
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise _malformed(key, type(shape).__name__, "a shape of two sizes")
    data, columns, starts = (as_array(value.state.get(name), key) for name in ("data", "indices", "indptr"))
    return csr_matrix(data, columns, starts, shape, key)


def csr_matrix(
    data: np.ndarray, columns: np.ndarray, starts: np.ndarray, shape: tuple[int, int], key: str
) -> scipy.sparse.csr_array:
    """A checked CSR matrix.

    Raises:
        DataError: row pointers, columns and shape contradict each other.
    """
    flat = data.ndim == columns.ndim == starts.ndim == 1 and columns.dtype.kind in "iu" and starts.dtype.kind in "iu"
    if not flat or starts.size != shape[0] + 1 or data.size != columns.size:
        raise _malformed(key, f"{starts.shape}, {columns.shape}, {data.shape}", f"the arrays of a {shape} CSR matrix")
    starts = starts.astype(np.int64)
    if starts[0] != 0 or starts[-1] != data.size or (np.diff(starts) < 0).any():
        raise _malformed(key, "row pointers out of order", f"ascending from 0 to {data.size}")
    if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < shape[1]:
        raise _malformed(key, f"columns {columns.min()}..{columns.max()}", f"columns in 0..{shape[1] - 1}")
    matrix = scipy.sparse.csr_array((data, columns, starts), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _malformed(key: str, found: str, allowed: str) -> DataError:
    return DataError(Problem(key, found, f"must hold {allowed}", "get the file again from its publisher"))
