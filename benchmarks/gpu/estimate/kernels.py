"""The work of Triton's kernels, by formulas: they are not run here, because the interpreter takes hours at full size.

- A pass over edges reads a row for each edge (gathered bytes), the numbers of the edges, and the rows of its own side.
  If it reads rows where they are stored, it also reads an id for each edge, and the matrix of a batch is not written.
- Any other kernel of the model reads and writes each argument once.
- Sampling: for each destination, a kernel reads two positions. For each edge, it reads one neighbour, and reads or
  writes the table four times. Each of these takes a sector, because neighbours are anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from benchmarks.gpu.estimate.work import SECTOR, Meter, Work
from gnnexp.kernels.samplers import hop

_PASS, _DROPOUT = "edge_pass_kernel", "drop_rows_kernel"


def kernel_work(name: str, arguments: Mapping[str, Any]) -> Work:
    """The work of one launch of a kernel of `gnnexp.kernels.cuda`.

    Args:
        name: of the kernel.
        arguments: its arguments by name.
    """
    tensors = {key: value for key, value in arguments.items() if isinstance(value, Tensor)}
    if name == _DROPOUT and "places" in tensors:  # reads one stored row for each row that it writes
        rows = tensors["out"].numel() * tensors["x"].element_size()
        return Work(1, rows + sum(tensor.nbytes for key, tensor in tensors.items() if key != "x"))
    if name != _PASS:
        return Work(1, sum(tensor.nbytes for tensor in tensors.values()))
    if arguments["OF_SEGMENTS"]:  # the rest of rows with more than 1,024 edges, which the other launch does not read
        return Work(1)
    edges = tensors["index"].numel() if "index" in tensors else tensors["x"].shape[0]
    columns = arguments["stop"] - arguments["start"]
    rest = sum(tensor.nbytes for key, tensor in tensors.items() if key not in ("x", "partial", "ids"))
    rest += edges * tensors["ids"].element_size() if "ids" in tensors else 0
    return Work(1, rest, edges * columns * tensors["x"].element_size())


class SampledByTriton:
    """The steps of a hop (`samplers.device_hops.HopKernels`): results of plain torch, and the work of Triton's kernels.

    Args:
        meter: returns the meter that counts the work now, or None.
    """

    def __init__(self, meter: Callable[[], Meter | None]) -> None:
        self._meter = meter

    def count_edges(self, indptr: Tensor, vertices: Tensor, count: Tensor, fanout: int, loops: int) -> Tensor:
        """One kernel."""
        with self._instead("count_kernel", [vertices.numel() * (vertices.element_size() + 2 * SECTOR + 8)]):
            return hop.count_edges(indptr, vertices, count, fanout, loops)

    def draw_edges(
        self,
        indptr: Tensor,
        indices: Tensor,
        names: Tensor | None,
        vertices: Tensor,
        count: Tensor,
        fanout: int,
        loops: int,
        key: Tensor,
        bounds: Tensor,
        num_edges: int,
        wants_positions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """One kernel."""
        own = vertices.numel() * (vertices.element_size() + 2 * SECTOR + bounds.element_size())
        of_edge = SECTOR + indices.element_size() + 8 * wants_positions
        with self._instead("draw_kernel", [own + num_edges * of_edge]):
            return hop.draw_edges(
                indptr, indices, names, vertices, count, fanout, loops, key, bounds, num_edges, wants_positions
            )

    def relabel(
        self,
        found: Tensor,
        total: Tensor,
        table: Tensor,
        most: int,
        vertices: Tensor,
        count: Tensor,
        known: Tensor,
    ) -> Tensor:
        """Three kernels and a prefix sum: minimum of numbers, first edges, their sum, positions."""
        edges, size = found.numel(), found.element_size()
        passes = [
            edges * (size + 2 * SECTOR),
            edges * (size + SECTOR + 4),
            edges * 8,
            edges * (size + 2 * SECTOR + SECTOR + 4),
        ]
        with self._instead("relabel", passes):
            return hop.relabel(found, total, table, most, vertices, count, known)

    @contextmanager
    def _instead(self, kernel: str, launches: list[int]) -> Iterator[None]:
        meter = self._meter()
        if meter is None:
            yield
            return
        meter.pause(True)
        yield
        meter.pause(False)
        for streamed in launches:
            meter.add(kernel, Work(1, streamed))


def record_launches(record: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Record each launch of Triton in this process instead of running it. Results have no meaning."""
    from triton.runtime.interpreter import GridExecutor

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        record(self.fn.__name__, {**dict(zip(self.arg_names, args, strict=False)), **kwargs})

    GridExecutor.__call__ = launch
