"""The opcodes of pickles that hold data: what each does, and the inert stand-ins that take the place of classes.

Python's own unpickler never sees a pickle from a file. `Machine` knows only the opcodes that data is made of, and looks
up only the globals that numpy, scipy and torch write into such files. Nothing is imported, called or hashed on the word
of a file. What comes out is plain Python data, `PickledDict`, `PickledArray` and `PickledCsr`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self


class _Inert:
    """A stand-in of a class; it takes a state only where it says so."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def take(self, state: Any) -> None:  # noqa: ANN401
        """What BUILD hands over.

        Raises:
            UnpicklingError: this class has no such state.
        """
        raise pickle.UnpicklingError(f"{type(self).__name__} takes no state")


class PickledDict(_Inert):
    """A dictionary as its pairs, in their order.

    Nothing is hashed, because whoever writes a file may choose keys that collide: 40,000 such integers would take a
    Python dictionary ten seconds.
    """

    __slots__ = ("pairs",)
    pairs: list[tuple[object, object]]

    def __new__(cls, *_: object) -> Self:
        """An empty one; a defaultdict names its factory, which is of no use here."""
        mapping = super().__new__(cls)
        mapping.pairs = []
        return mapping

    def named(self) -> dict[str, object]:
        """The values whose keys are text (which Python hashes with a secret of the process), the last of each."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


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

    def take(self, state: object) -> None:
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
        """An empty one, which BUILD fills."""
        array = super().__new__(cls)
        array.shape, array.dtype, array.fortran, array.data = (0,), PickledDtype("u1"), False, b""
        return array

    def take(self, state: Any) -> None:  # noqa: ANN401
        """Take numpy's `(version, shape, dtype, is_fortran, data)`."""
        _, shape, dtype, fortran, data = state
        sizes_ok = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not sizes_ok or not isinstance(dtype, PickledDtype) or not isinstance(data, bytes | str | list):
            raise pickle.UnpicklingError("malformed array")
        self.shape, self.dtype, self.fortran, self.data = shape, dtype, bool(fortran), data


class PickledCsr(_Inert):
    """The attributes of a `scipy.sparse.csr_matrix`, as they stand in the pickle."""

    __slots__ = ("state",)
    state: dict[str, object]

    def __new__(cls, *_: object) -> Self:
        """An empty one."""
        matrix = super().__new__(cls)
        matrix.state = {}
        return matrix

    def take(self, state: object) -> None:
        """Take the attribute dictionary."""
        if not isinstance(state, PickledDict):
            raise pickle.UnpicklingError("malformed sparse matrix")
        self.state = state.named()


def _encode(text: object, encoding: object) -> bytes:
    """`_codecs.encode`, of text to latin-1 bytes only."""
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("_codecs.encode of something else than text to latin-1")
    return text.encode("latin-1")


class _List(_Inert):
    """`list`, named as the factory of a defaultdict; never made."""

    def __new__(cls, *_: object) -> Self:
        raise pickle.UnpicklingError("it calls list")


@dataclass(frozen=True)
class _Global:
    """What a pickle may name, and what it gets when it calls it."""

    make: Callable[..., object]


_GLOBALS: dict[tuple[str, str], _Global] = {
    ("numpy", "ndarray"): _Global(PickledArray),
    ("numpy", "dtype"): _Global(PickledDtype),
    ("numpy.core.multiarray", "_reconstruct"): _Global(PickledArray),
    ("numpy._core.multiarray", "_reconstruct"): _Global(PickledArray),
    ("scipy.sparse.csr", "csr_matrix"): _Global(PickledCsr),
    ("scipy.sparse._csr", "csr_matrix"): _Global(PickledCsr),
    ("collections", "defaultdict"): _Global(PickledDict),
    ("__builtin__", "list"): _Global(_List),
    ("builtins", "list"): _Global(_List),
    ("_codecs", "encode"): _Global(_encode),
}

_LITERALS = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_UNSET = object()
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Machine:
    """Works through the opcodes of one pickle; every step takes time and memory of the opcode's own bytes.

    Args:
        size: bytes of the pickle.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._stack: list[object] = []
        self._below_marks: list[list[object]] = []
        self._memo: list[object] = []

    def step(self, name: str, argument: Any) -> None:  # noqa: ANN401
        """Do the next opcode.

        Raises:
            UnpicklingError: it is not allowed, or not of what lies on the stack.
            IndexError: nothing lies there.
        """
        stack = self._stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name in ("PROTO", "FRAME", "STOP"):
            pass
        elif name == "MARK":
            self._below_marks.append(stack)
            self._stack = []
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._store(len(self._memo) if name == "MEMOIZE" else argument, stack[-1])
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._stored(argument))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_named(*(self._pop(2) if name == "STACK_GLOBAL" else argument.split(" ", 1))))
        elif name in ("REDUCE", "NEWOBJ"):
            called, arguments = self._pop(2)
            stack.append(_call(called, arguments))
        elif name == "BUILD":
            target, state = self._pop(2)
            if not isinstance(target, _Inert):
                raise pickle.UnpicklingError(f"{type(target).__name__} takes no state")
            target.take(state)
            stack.append(target)
        else:
            self._collect(name)

    def result(self) -> object:
        """What STOP leaves."""
        (value,) = self._pop(1)
        return value

    def _collect(self, name: str) -> None:
        """The opcodes of lists, dictionaries and longer tuples."""
        if name in ("LIST", "TUPLE"):
            items = self._marked()
            self._stack.append(items if name == "LIST" else tuple(items))
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            self._stack.append([] if name == "EMPTY_LIST" else PickledDict())
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._marked()
            if not isinstance(self._stack[-1], list):
                raise pickle.UnpicklingError(f"{name} to {type(self._stack[-1]).__name__}")
            self._stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            items = self._pop(2) if name == "SETITEM" else self._marked()
            if name == "DICT":
                self._stack.append(PickledDict())
            target = self._stack[-1]
            if not isinstance(target, PickledDict):
                raise pickle.UnpicklingError(f"{name} of {type(target).__name__}")
            target.pairs.extend(zip(items[::2], items[1::2], strict=True))
        else:
            raise pickle.UnpicklingError(f"it uses the opcode {name}")

    def _store(self, index: int, value: object) -> None:
        # A list, for the same reason as `PickledDict`; writers number from 0 or 1 on, so it is never longer than this.
        if not 0 <= index <= self._size:
            raise pickle.UnpicklingError(f"memo index {index}")
        self._memo += [_UNSET] * (index + 1 - len(self._memo))
        self._memo[index] = value

    def _stored(self, index: int) -> object:
        if not 0 <= index < len(self._memo) or self._memo[index] is _UNSET:
            raise pickle.UnpicklingError(f"nothing has the memo index {index}")
        return self._memo[index]

    def _pop(self, count: int) -> list[Any]:
        """The last `count` values above the last mark."""
        if count > len(self._stack):
            raise IndexError("it takes more values than there are")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return values

    def _marked(self) -> list[object]:
        """The values above the last mark, which goes with them."""
        values, self._stack = self._stack, self._below_marks.pop()
        return values


def _named(module: object, name: object) -> _Global:
    if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _GLOBALS:
        raise pickle.UnpicklingError(f"it refers to {_text(module)}.{_text(name)}")
    return _GLOBALS[module, name]


def _text(value: object) -> str:
    return value[:80] if isinstance(value, str) else type(value).__name__


def _call(called: object, arguments: object) -> object:
    if not isinstance(called, _Global) or not isinstance(arguments, tuple):
        raise pickle.UnpicklingError(f"it calls {_text(called)}")
    return called.make(*arguments)
