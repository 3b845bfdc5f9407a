"""Triton's interpreter on the emulated device: a launch is one kernel, which reads and writes the device's bytes.

Triton's own way would copy every argument to the host and back. That would count as copies and waits, and would write
arguments that the kernel only reads. Here a launch goes through torch's dispatcher, as an operation that says which
arguments it writes. So the emulated device counts one launch, and checks devices and streams.
"""

# ruff: noqa: ANN401  Triton has no types
from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import itertools
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from emulated_gpu.counts import NAMES

_P = ParamSpec("_P")
_R = TypeVar("_R")
Launch = Callable[[Sequence[Tensor], Sequence[Tensor]], None]  # with tensors of the host
_LIBRARY = "gnnexp_triton"
_HOST_READ, _PEER_READ = NAMES.index("host_read_bytes"), NAMES.index("peer_read_bytes")
_WRITES = (
    "store",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
)


class _Launches:
    """Launches of kernels as operations of torch, one operation for each kernel.

    Attributes:
        lock: held while a launch runs, because the interpreter changes `triton.language`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._library: Any = torch.library.Library(_LIBRARY, "DEF")  # type: ignore[no-untyped-call]
        self._operations: dict[str, Callable[..., None]] = {}
        self._by_number: dict[int, Launch] = {}  # the launch that runs now, and those of captured graphs
        self._numbers = itertools.count()

    def dispatch(self, kernel: str, reads: Sequence[Tensor], writes: Sequence[Tensor], launch: Launch) -> None:
        """Run `launch(reads, writes)` on the host, as one operation of the device; a captured graph keeps it."""
        number = next(self._numbers)
        self._by_number[number] = launch
        try:
            self._operation(kernel)(reads, writes, number)
        finally:
            if not torch.cuda.is_current_stream_capturing():  # else replays launch it again
                del self._by_number[number]

    def _operation(self, kernel: str) -> Callable[..., None]:
        if kernel not in self._operations:
            self._library.define(f"{kernel}(Tensor[] reads, Tensor(a!)[] writes, int number) -> ()")
            self._library.impl(kernel, self._run, "CPU")
            self._operations[kernel] = getattr(getattr(torch.ops, _LIBRARY), kernel)
        return self._operations[kernel]

    def _run(self, reads: Sequence[Tensor], writes: Sequence[Tensor], number: int) -> None:
        with self.lock:  # a replay comes from here
            self._by_number[number](reads, writes)


def install(device: ctypes.CDLL) -> None:
    """Let interpreted launches with tensors of the emulated device run on it; TRITON_INTERPRET=1 must be set."""
    from triton.runtime.interpreter import GridExecutor

    original, launches = GridExecutor.__call__, _Launches()
    written_by = _parsed_one_at_a_time(launches.lock)

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        tensors = {name: value for name, value in bound.items() if isinstance(value, Tensor)}
        if not any(tensor.is_cuda for tensor in tensors.values()):
            with launches.lock:
                original(self, *args, **kwargs)
            return
        written, kernel = written_by(self.fn), self.fn.__name__
        # A GPU reads pinned host memory over the link.
        pinned = {name: value for name, value in tensors.items() if not value.is_cuda}
        for name, value in pinned.items():
            if not value.is_pinned() or name in written:
                raise ValueError(
                    f"Pointer argument cannot be accessed from Triton (cpu tensor?): {name} of "
                    f"{kernel} on the emulated device"
                )
        tensors = {name: value for name, value in tensors.items() if value.is_cuda}
        names = [[name for name in tensors if (name in written) == wanted] for wanted in (False, True)]
        rest = {name: value for name, value in bound.items() if name not in tensors}  # a graph keeps no tensor

        def on_host(*hosts: Sequence[Tensor]) -> None:
            there = {
                name: host for group, of in zip(names, hosts, strict=True) for name, host in zip(group, of, strict=True)
            }
            with _counted_reads(pinned.values(), device, kernel):
                original(self, **{**rest, **there})

        reads, writes = ([tensors[name].detach() for name in group] for group in names)
        with launches.lock:
            launches.dispatch(kernel, reads, writes, on_host)

    GridExecutor.__call__ = launch


def _parsed_one_at_a_time(lock: Any) -> Callable[[Callable[..., Any]], set[str]]:
    """`written_arguments`, which no thread calls while another thread, or Triton, parses a kernel.

    Python 3.11 counts the depth of syntax trees once for all threads. Two that parse at the same time (a batch is
    prepared ahead) may end in a SystemError.
    """
    from triton.runtime.interpreter import FunctionRewriter

    FunctionRewriter.rewrite_ast = _one_at_a_time(FunctionRewriter.rewrite_ast, lock)
    return _one_at_a_time(functools.cache(written_arguments), lock)


def _one_at_a_time(function: Callable[_P, _R], lock: Any) -> Callable[_P, _R]:
    @functools.wraps(function)
    def alone(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with lock:
            return function(*args, **kwargs)

    return alone


@contextmanager
def _counted_reads(pinned: Iterable[Tensor], device: ctypes.CDLL, kernel: str) -> Iterator[None]:
    """Count the bytes that a kernel reads from pinned host memory and from other ranks, by addresses of its loads.

    Raises:
        RuntimeError: a kernel reads memory of another rank that its owner has freed.
    """
    from triton.runtime.interpreter import interpreter_builder

    ranges = {(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in pinned}  # two names, one array
    if not ranges and not device.emulated_num_opened():
        yield
        return
    load = interpreter_builder.create_masked_load

    def count(what: int, amount: int) -> None:
        if amount:
            device.emulated_add(what, ctypes.c_int64(amount), kernel.encode())

    def counted(pointers: Any, mask: Any, *others: Any) -> Any:
        addresses = np.ascontiguousarray(pointers.data, np.uint64)
        read = np.ascontiguousarray(np.broadcast_to(mask.data, addresses.shape), np.bool_)
        foreign = device.emulated_peer_reads(
            ctypes.c_void_p(addresses.ctypes.data), ctypes.c_void_p(read.ctypes.data), ctypes.c_int64(addresses.size)
        )
        if foreign < 0:
            raise RuntimeError(f"emulated CUDA: {kernel} reads memory of another rank that its owner has freed")
        value = load(pointers, mask, *others)
        size = value.data.itemsize
        count(_PEER_READ, foreign * size)
        for start, end in ranges:
            count(_HOST_READ, int((read & (addresses >= start) & (addresses < end)).sum()) * size)
        return value

    interpreter_builder.create_masked_load = counted
    try:
        yield
    finally:
        del interpreter_builder.create_masked_load


def written_arguments(function: Callable[..., Any]) -> set[str]:
    """Arguments of a kernel that are the address of a store or of an atomic operation, found in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (kernel,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    arguments = {argument.arg for argument in kernel.args.args}
    bases = {
        target.id: node.value
        for node in ast.walk(kernel)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES:
            found.add(_base(node.args[0], bases))
    assert found and found <= arguments, f"{kernel.name} writes {found or 'nothing'}, which are not its arguments"
    return found


def _base(address: ast.expr, bases: dict[str, ast.expr]) -> str:
    """The leftmost name of `base + offset`, through at most one local name."""
    while isinstance(address, ast.BinOp):
        address = address.left
    assert isinstance(address, ast.Name), "an address is a name plus offsets"
    return _base(bases[address.id], {}) if address.id in bases else address.id
