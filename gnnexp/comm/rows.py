"""Exchange of feature rows, dense or sparse, in one payload round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.graph.sparse import Rows, SparseRows, ends
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.shape_tensor import memory_like
from gnnexp.measure.ledger import Tag


def exchange_rows(
    rows: Rows, sent: Sequence[int], received: Sequence[int], comm: Communicator, tag: Tag, pool: Pool | None = None
) -> Rows:
    """Send rows to every other rank, and receive rows from every other rank.

    Dense rows travel as they are. For sparse rows, each pair of ranks exchanges lengths (int32), columns (int32) and
    values in one payload. An exchange of sizes (tag `sizes`) comes first.

    Args:
        rows: `[sum(sent), D]`, ordered by receiving rank.
        sent: number of rows for each rank, 0 for this rank.
        received: number of rows from each rank.
        comm: among the participating ranks.
        tag: under which traffic is counted.
        pool: memory for received dense rows, None for new memory.
    """
    if isinstance(rows, Tensor):
        out = None if pool is None or rows.is_cuda else memory_like(pool, (sum(received), rows.shape[1]), rows)
        if rows.dtype != torch.int16:
            return comm.all_to_all(rows, sent, received, tag, out)
        # Bits of bfloat16 (`feature_stores.rows.RowForm`). Neither gloo nor NCCL sends int16.
        target = None if out is None else out.view(torch.bfloat16)
        return comm.all_to_all(rows.view(torch.bfloat16), sent, received, tag, target).view(torch.int16)
    packets = [_pack(rows, first, last) for first, last in pairwise(accumulate(sent, initial=0))]
    payload, incoming = comm.counted_all_to_all(torch.cat(packets), [packet.numel() for packet in packets], tag)
    arrived = torch.split_with_sizes(payload, incoming)
    parts = [_unpack(packet, count, rows) for packet, count in zip(arrived, received, strict=True)]
    return SparseRows.concatenated(parts)


def packed_bytes(rows: SparseRows) -> int:
    """Payload of sparse rows: lengths, columns and values."""
    return 4 * rows.shape[0] + (4 + rows.values.element_size()) * rows.values.numel()


def _pack(rows: SparseRows, first: int, last: int) -> Tensor:
    """Rows `first:last` as bytes: lengths, columns, values."""
    start, stop = int(rows.indptr[first]), int(rows.indptr[last])
    lengths = (rows.indptr[first + 1 : last + 1] - rows.indptr[first:last]).int()
    return torch.cat(
        [
            part.contiguous().view(torch.uint8)
            for part in (lengths, rows.columns[start:stop].int(), rows.values[start:stop])
        ]
    )


def _unpack(packet: Tensor, count: int, like: SparseRows) -> SparseRows:
    """The `count` rows of a packet."""
    packet = packet.clone()  # aligned; in the payload it may start at any byte
    lengths = packet[: 4 * count].view(torch.int32)
    indptr = ends(lengths)
    stop = 4 * (count + int(indptr[-1]))
    columns = packet[4 * count : stop].clone().view(torch.int32)
    values = packet[stop:].clone().view(like.dtype)
    return SparseRows(indptr, columns, values, like.num_columns)
