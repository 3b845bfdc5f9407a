"""The bytes and operations of a step's kernels, counted while the step runs.

`Meter` sees each operation of torch with its tensors. The bytes of an operation follow from the sizes of these tensors:

- By default a kernel reads each input once and writes each output once. A dimension that is only repeated is read once.
- An operation that takes rows by number (`_RANDOM`) reads or writes the chosen rows. A row has at least one sector.
- A sum over edges (`embedding_bag`) reads one row for each edge. These are the gathered bytes.
- A sort reads and writes keys and positions once for each byte of the key, as a radix sort does.
- A product reads both factors, and has 2 m n k operations.
- A view, and an allocation, has neither bytes nor a launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SECTOR = 32  # bytes that a GPU reads at least
_NOTHING = (
    "empty",
    "new_empty",
    "empty_strided",
    "empty_like",
    "detach",
    "alias",
    "_local_scalar_dense",
    "pin_memory",
    "_pin_memory",
    "is_pinned",
    "record_stream",
    "set_",
    "resize_",
    "_unsafe_view",
)
_WRITES_ONLY = ("zero_", "fill_", "copy_", "cumsum", "arange")  # the old values of the target are not read
_RANDOM = (
    "index_select",
    "index",
    "embedding",
    "gather",
    "index_put_",
    "scatter_",
    "scatter_add_",
    "scatter_reduce_",
    "_index_put_impl_",
    "index_add_",
    "index_copy_",
)
_PRODUCTS = ("mm", "addmm", "addmm_", "bmm")


@dataclass(frozen=True)
class Work:
    """The work of some launches of one kernel.

    Attributes:
        launches: number of launches.
        streamed_bytes: bytes that are read and written in order, or in rows by number.
        gathered_bytes: bytes of rows that sums over edges read.
        operations: operations of dense products.
    """

    launches: int = 0
    streamed_bytes: int = 0
    gathered_bytes: int = 0
    operations: int = 0

    def __add__(self, other: Work) -> Work:
        """The sum of both."""
        return Work(
            self.launches + other.launches,
            self.streamed_bytes + other.streamed_bytes,
            self.gathered_bytes + other.gathered_bytes,
            self.operations + other.operations,
        )


Found = dict[tuple[str, str], Work]  # by part of the step, and kernel


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the work of all operations on a device inside the context.

    Args:
        part: function that returns the current part of the step.
        device: type of the device; operations of other devices are not counted.
    """

    def __init__(self, part: Callable[[], str], device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._part, self._device, self._paused = part, device, 0
        self.found: Found = defaultdict(Work)

    def add(self, kernel: str, work: Work) -> None:
        """Add work that no operation of torch does."""
        self.found[self._part(), kernel] += work

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the operation, and count it."""
        given = kwargs or {}
        result = func(*args, **given)
        if not self._paused:
            name = func.overloadpacket.__name__
            inputs = _tensors((args, given))
            changed = inputs if result is None and func._schema.is_mutable else _tensors(result)  # a fused optimizer
            work = work_of(name, inputs, changed, is_view=func.is_view)
            if work.launches and self._is_on_device(result, args):
                self.add(name, work)
        return result

    def pause(self, on: bool) -> None:
        """Whether operations are not counted until the next call: those that stand for a kernel that is added."""
        self._paused = on

    def _is_on_device(self, *trees: Any) -> bool:  # noqa: ANN401
        tensors = [tensor for tree in trees for tensor in _tensors(tree)]
        return bool(tensors) and all(tensor.device.type == self._device for tensor in tensors)


def work_of(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, is_view: bool = False) -> Work:
    """The work of one operation of torch.

    Args:
        name: its name without its overload.
        inputs: its tensors, also those that it changes.
        outputs: its results.
        is_view: whether it returns a view.
    """
    if is_view or name in _NOTHING or not outputs or not any(output.numel() for output in outputs):
        return Work()
    if name in _PRODUCTS:
        first, second = inputs[-2:]
        return Work(1, _bytes([first, second, *outputs]), 0, 2 * first.numel() * second.shape[-1])
    if name.startswith("_embedding_bag"):
        rows, indices = inputs[:2]  # the table; backward, the gradient of the sums
        sorting = _sort_bytes(indices) if "backward" in name else 0  # edges by source
        return Work(1, sorting + _bytes([*inputs[1:3], *outputs]), indices.numel() * _row_bytes(rows))
    return Work(1, _sort_bytes(inputs[0]) if name == "sort" else _moved_bytes(name, inputs, outputs))


def _moved_bytes(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Of operations that only move or change values."""
    if name in _RANDOM:
        return _random_bytes(name, inputs, outputs)
    written = [output for output in outputs if any(output is tensor for tensor in inputs)]
    read = inputs if name not in _WRITES_ONLY else [t for t in inputs if not any(t is other for other in written)]
    return _bytes([*read, *outputs])


def _random_bytes(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Of rows by number: the numbers, the chosen rows, and the rows of the other side."""
    integers = [tensor for tensor in inputs[1:] if not tensor.dtype.is_floating_point]
    if name.endswith("_"):  # rows go into the first tensor
        chosen = max(inputs[1:], key=lambda tensor: tensor.numel())
        numbers = integers[0] if integers else chosen
        rows = numbers.numel()
        return _bytes(inputs[1:]) + 2 * rows * max(SECTOR, chosen.nbytes // max(1, rows))
    numbers = integers[0] if integers else inputs[-1]
    rows, taken = max(1, numbers.numel()), outputs[0].nbytes
    return numbers.nbytes + taken + rows * max(SECTOR, taken // rows)


def _sort_bytes(keys: Tensor) -> int:
    """One pass for each byte of the key, which reads and writes keys and positions of 8 bytes."""
    size = keys.element_size()
    return 2 * size * keys.numel() * (size + 8)


def _row_bytes(table: Tensor) -> int:
    return table.shape[-1] * table.element_size()


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the values that are stored, without repeated dimensions."""
    found = 0
    for tensor in tensors:
        size = tensor.element_size()
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            size *= length if stride else 1
        found += size if tensor.numel() else 0
    return found


def _tensors(tree: Any) -> list[Tensor]:  # noqa: ANN401
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def by_part(found: Found) -> Iterator[tuple[str, Work]]:
    """The sum of the kernels of each part, in order of appearance."""
    parts: dict[str, Work] = {}
    for (part, _), work in found.items():
        parts[part] = parts.get(part, Work()) + work
    yield from parts.items()
