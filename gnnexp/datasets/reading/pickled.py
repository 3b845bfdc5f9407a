"""Reads pickles that hold data. Harmless classes of this module replace those in the pickle.

`Unpickler` knows only the opcodes of data, and only the globals that numpy, scipy and torch write into such files.
Nothing is imported, called or hashed because a file asks for it. The result is plain Python data, `PickledDict`,
`PickledArray` and `PickledCsr`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, ClassVar, Self


class Inert:
    """A harmless replacement of a class. Only subclasses that override `take` accept a state."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def take(self, state: Any) -> None:  # noqa: ANN401
        """Set the state that the opcode BUILD passes.

        Raises:
            UnpicklingError: this class does not accept the state.
        """
        raise pickle.UnpicklingError(f"{type(self).__name__} takes no state")


class PickledDict(Inert):
    """A dictionary as a list of its pairs, in their order.

    Keys are not hashed, because the author of a file can choose keys that collide: a Python dictionary of 40,000 such
    integers would take ten seconds.
    """

    __slots__ = ("pairs",)
    pairs: list[tuple[object, object]]

    def __new__(cls, *_: object) -> Self:
        """An empty dictionary. The factory of a defaultdict is ignored."""
        mapping = super().__new__(cls)
        mapping.pairs = []
        return mapping

    def __setitem__(self, key: object, value: object) -> None:
        self.pairs.append((key, value))

    def named(self) -> dict[str, object]:
        """The values by key, for keys that are texts: Python hashes texts with a secret, so they cannot collide."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


class PickledDtype(Inert):
    """The state of `numpy.dtype(text)`: type name and byte order."""

    __slots__ = ("order", "text")
    text: str
    order: str

    def __new__(cls, text: object, *_: object) -> Self:
        """A dtype of a type name such as `f4`. Only texts are allowed: nested lists could be endless as text."""
        if not isinstance(text, str):
            raise pickle.UnpicklingError("malformed dtype")
        dtype = super().__new__(cls)
        dtype.text, dtype.order = text, "<"
        return dtype

    def take(self, state: object) -> None:
        """Set the byte order from numpy's state tuple."""
        if isinstance(state, tuple) and len(state) > 1 and isinstance(state[1], str):
            self.order = state[1]


class PickledArray(Inert):
    """The state of a `numpy.ndarray`, as it is in the pickle."""

    __slots__ = ("data", "dtype", "fortran", "shape")
    shape: tuple[int, ...]
    dtype: PickledDtype
    fortran: bool
    data: bytes | str | list[object]

    def __new__(cls, *_: object) -> Self:
        """An empty array, whose state BUILD sets."""
        array = super().__new__(cls)
        array.shape, array.dtype, array.fortran, array.data = (0,), PickledDtype("u1"), False, b""
        return array

    def take(self, state: Any) -> None:  # noqa: ANN401
        """Set the state from numpy's `(version, shape, dtype, is_fortran, data)`."""
        _, shape, dtype, fortran, data = state
        sizes_ok = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not sizes_ok or not isinstance(dtype, PickledDtype) or not isinstance(data, bytes | str | list):
            raise pickle.UnpicklingError("malformed array")
        self.shape, self.dtype, self.fortran, self.data = shape, dtype, bool(fortran), data


class PickledCsr(Inert):
    """The attributes of a `scipy.sparse.csr_matrix`, as they are in the pickle."""

    __slots__ = ("state",)
    state: dict[str, object]

    def __new__(cls, *_: object) -> Self:
        """An empty matrix, whose state BUILD sets."""
        matrix = super().__new__(cls)
        matrix.state = {}
        return matrix

    def take(self, state: object) -> None:
        """Set the attributes from their dictionary."""
        if not isinstance(state, PickledDict):
            raise pickle.UnpicklingError("malformed sparse matrix")
        self.state = state.named()


def _encode(text: object, encoding: object) -> bytes:
    """`_codecs.encode`, only for text to latin-1 bytes."""
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("_codecs.encode of something else than text to latin-1")
    return text.encode("latin-1")


class _List(Inert):
    """`list`, which a pickle names as the factory of a defaultdict. It cannot be called."""

    def __new__(cls, *_: object) -> Self:
        raise pickle.UnpicklingError("it calls list")


GLOBALS: Mapping[tuple[str, str], object] = {
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledDtype,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("scipy.sparse._csr", "csr_matrix"): PickledCsr,
    ("collections", "defaultdict"): PickledDict,
    ("__builtin__", "list"): _List,
    ("builtins", "list"): _List,
    ("_codecs", "encode"): _encode,
}

# Opcodes of data that Python's unpickler may execute as they are. Others that gnnexp allows are methods of `Unpickler`.
_OPCODES = (
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
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
    "EMPTY_TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "TUPLE",
    "LIST",
    "EMPTY_LIST",
    "APPEND",
    "APPENDS",
    "SETITEM",
    "SETITEMS",
    "PUT",
    "BINPUT",
    "LONG_BINPUT",
    "MEMOIZE",
    "GET",
    "BINGET",
    "LONG_BINGET",
    "GLOBAL",
    "STACK_GLOBAL",
)


class _Memo(dict[int, object]):
    """Values by index. Writers count from 0 or 1, so an index is never larger than the pickle: no two collide."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __setitem__(self, index: int, value: object) -> None:
        if index > self._size:
            raise pickle.UnpicklingError(f"memo index {index}")
        super().__setitem__(index, value)


class _Opcodes(dict[int, Callable[[Any], None]]):
    """What is executed for each opcode that gnnexp allows."""

    def __missing__(self, opcode: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError(f"it uses the opcode {bytes([opcode])!r}")


class Unpickler(pickle._Unpickler):
    """Python's own unpickler, in its form in Python, with the opcodes of data only.

    Time and memory of a step are limited by the bytes of its opcode.

    Args:
        stream: the pickle.
        size: its bytes.

    Attributes:
        known: what stands for the globals that a pickle may name.
    """

    known: ClassVar[Mapping[tuple[str, str], Any]] = GLOBALS
    stack: list[Any]
    append: Callable[[object], None]
    pop_mark: Callable[[], list[object]]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = _Opcodes(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _OPCODES}
    )

    def __init__(self, stream: IO[bytes], size: int) -> None:
        super().__init__(stream, encoding="latin1")
        self.memo = _Memo(size)

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """What is called in place of a global that a pickle names."""
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it refers to {module[:80]}.{name[:80]}")
        return self.known[module, name]

    def _reduce(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if called not in self.known.values() or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError(f"it calls {type(called).__name__}")
        self.append(called(*arguments))

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Inert):
            raise pickle.UnpicklingError(f"{type(self.stack[-1]).__name__} takes no state")
        self.stack[-1].take(state)

    def _dict(self, items: Sequence[object] = ()) -> None:
        self.append(PickledDict())
        self.stack[-1].pairs.extend(zip(items[::2], items[1::2], strict=True))

    dispatch |= {
        pickle.REDUCE[0]: _reduce,
        pickle.NEWOBJ[0]: _reduce,
        pickle.BUILD[0]: _build,
        pickle.EMPTY_DICT[0]: _dict,
        pickle.DICT[0]: lambda self: self._dict(self.pop_mark()),
    }
