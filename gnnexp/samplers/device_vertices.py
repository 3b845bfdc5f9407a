"""The vertices of a batch on a device, in order of first appearance, and the tables that give their positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.kernels.crossing import back
from gnnexp.samplers.device_hops import DeviceTopology

NOWHERE = (1 << 31) - 1


@dataclass
class Table:
    """A table for one batch at a time.

    Attributes:
        entries: `[V + 1]` int32 position of each vertex in the batch, `NOWHERE` for others. The last entry belongs to
            no vertex.
        used: event after the last batch; None on CPU.
    """

    entries: Tensor
    used: torch.cuda.Event | None = None

    def forget(self, vertices: Tensor) -> None:
        """Clear the entries of `vertices` `[n]`."""
        self.entries.index_fill_(0, vertices.long(), NOWHERE)


class VertexTables:
    """One table for each batch that is made at the same time.

    Args:
        num_nodes: V.
        device: where the tables are.
    """

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self._num_nodes, self._device = num_nodes, device
        self._spare: list[Table] = []

    @contextmanager
    def lent(self) -> Iterator[Table]:
        """Context with a table for one batch, which must clear its entries. After an error it is not used again."""
        try:
            table = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            table = Table(torch.full((self._num_nodes + 1,), NOWHERE, dtype=torch.int32, device=self._device))
        stream = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None
        if stream is not None and table.used is not None:  # another thread may use another stream
            stream.wait_event(table.used)
            table.entries.record_stream(stream)
        yield table
        table.used = None if stream is None else stream.record_event()
        self._spare.append(table)


class Vertices:
    """The vertices of a batch so far.

    Attributes:
        table: their positions.
        ids: `[most + 1]` or larger; the first `count` are real.
        most: upper bound for their number.
        counts: `[1]` numbers of vertices after each call of `add`; the first one is that of the seeds.
    """

    def __init__(self, topology: DeviceTopology, table: Table, seeds: Tensor) -> None:
        self._topology, self.table = topology, table
        self.most, self.ids = 0, seeds.new_empty(seeds.numel() + 1)
        self.counts = [torch.zeros(1, dtype=torch.int64, device=seeds.device)]
        self.add(seeds, torch.full_like(self.counts[0], seeds.numel()), seeds.numel())
        del self.counts[0]

    @property
    def count(self) -> Tensor:
        """`[1]` number of vertices."""
        return self.counts[-1]

    @property
    def real(self) -> Tensor:
        """`[most]` the vertices, with room."""
        return self.ids[: self.most]

    def limit(self, most: int) -> None:
        """Set a smaller bound, because the host knows more now."""
        self.most = min(self.most, most)

    def read_back(self, counts: Sequence[Tensor], totals: Sequence[Tensor]) -> tuple[list[int], list[int], Tensor]:
        """The end of a batch: sizes and vertices come to the host in one wait, and the table is cleared.

        Args:
            counts: `[1]` numbers of vertices, of which the last one is that of all.
            totals: other numbers `[1]`.

        Returns:
            `counts`, `totals`, and the vertices.
        """
        sizes, ids = back(torch.cat((*counts, *totals)), self.real)
        numbers = sizes.tolist()
        known, others = numbers[: len(counts)], numbers[len(counts) :]
        self.table.forget(self.ids[: known[-1]])
        return known, others, ids[: known[-1]]

    def add(self, ids: Tensor, total: Tensor, most_new: int) -> Tensor:
        """Append the new vertices among `ids`.

        Args:
            ids: `[E]` vertices, -1 for none.
            total: `[1]` how many entries of `ids` are real.
            most_new: upper bound for the number of new vertices.

        Returns:
            `[E]` int32 positions.
        """
        most = min(self._topology.num_nodes, self.most + most_new)
        grown = self.ids.new_empty(most + 1)
        grown[: self.most], self.ids, self.most = self.real, grown, most
        positions, known = relabelled(self._topology, ids, total, self.table, most, grown, self.count)
        self.counts.append(known)
        return positions


def relabelled(
    topology: DeviceTopology, ids: Tensor, total: Tensor, table: Table, most: int, vertices: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """`HopKernels.relabel`, and the `[1]` new number of vertices.

    Raises:
        ValueError: positions would be too large.
    """
    if most + ids.numel() > NOWHERE:
        raise ValueError(
            f"a batch of {most} vertices and {ids.numel()} edges in one hop: at most 2^31 together "
            "are supported, use smaller batches or fanouts"
        )
    if not ids.numel():
        return ids.int(), count
    known = torch.empty_like(count)
    return topology.kernels.relabel(ids, total, table.entries, most, vertices, count, known), known
