"""Pack a block into one array of integers, in which push-pull parallelism sends the first layer's block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import ends

# Weights and scales are in the packet only if the block has them.
_ALWAYS, _SOME = ("occurrence", "edge_types"), ("weight", "scale")


def pack_block(block: Block) -> tuple[Tensor, Tensor]:
    """`(sizes [n], packet [sum(sizes)])`: degrees, sources, source ids and data of edges, in the dtype of ids.

    Weights and scales are sent as the integers of their bits.

    Args:
        block: a block with all edges of its destinations, which are its first sources.
    """
    assert block.in_degree is None and block.dst_positions is None, "only whole blocks are packed"
    held = (getattr(block, name) for name in _carried(block))
    bits = (block.sources[:0] if values is None else values.view(torch.int32) for values in held)
    parts = [block.indptr[1:] - block.indptr[:-1], block.sources, block.src_ids, *bits]
    return torch.tensor([part.numel() for part in parts]), torch.cat([part.to(block.src_ids.dtype) for part in parts])


def unpack_block(packet: Tensor, sizes: Tensor, like: Block) -> Block:
    """The block in a packet.

    Args:
        packet: packet from `pack_block`.
        sizes: sizes from `pack_block`.
        like: a block of the same run, which has the same optional arrays.
    """
    degrees, sources, src_ids, *bits = torch.split_with_sizes(packet, sizes.tolist())
    of_edges: dict[str, Any] = {
        name: values.int().view(held.dtype)
        for name, values in zip(_carried(like), bits, strict=True)
        if (held := getattr(like, name)) is not None
    }
    block = Block(ends(degrees), sources.int(), src_ids.clone(), degrees.numel(), self_loops=like.self_loops)
    return replace(block, **of_edges)


def _carried(block: Block) -> list[str]:
    return [*_ALWAYS, *(name for name in _SOME if getattr(block, name) is not None)]
