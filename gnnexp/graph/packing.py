"""A block as one packet of integers: what push-pull parallelism ships of its first layer."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.block import Block


def pack_block(block: Block) -> tuple[Tensor, Tensor]:
    """`(sizes [5], packet [sum(sizes)])`: degrees, sources, source ids, occurrences and types, in the dtype of ids.

    Args:
        block: complete for its destinations, which come first.
    """
    assert block.in_degree is None and block.dst_positions is None, "only whole blocks travel"
    nothing = block.sources[:0]
    parts = [
        block.indptr[1:] - block.indptr[:-1], block.sources, block.src_ids,
        nothing if block.occurrence is None else block.occurrence,
        nothing if block.edge_types is None else block.edge_types,
    ]
    return torch.tensor([part.numel() for part in parts]), torch.cat([part.to(block.src_ids.dtype) for part in parts])


def unpack_block(packet: Tensor, sizes: Tensor, like: Block) -> Block:
    """The block of a packet.

    Args:
        packet: of `pack_block`.
        sizes: of `pack_block`.
        like: a block of the same run: which of the optional arrays there are.
    """
    degrees, sources, src_ids, occurrence, types = torch.split_with_sizes(packet, sizes.tolist())
    indptr = torch.zeros(degrees.numel() + 1, dtype=torch.int64)
    torch.cumsum(degrees, 0, out=indptr[1:])
    return Block(
        indptr, sources.int(), src_ids.clone(), degrees.numel(),
        occurrence=None if like.occurrence is None else occurrence.int(),
        edge_types=None if like.edge_types is None else types.int(), self_loops=like.self_loops,
    )
