"""Blocks as DGL's own, for comparisons with its convolutions."""

from __future__ import annotations

from typing import Any

import dgl
import torch

from gnnexp.graph.block import Block


def block_to_dgl(block: Block) -> Any:
    """`block` as a DGL block, destinations first. It is built from COO: CSC without edge ids breaks edge softmax."""
    destinations = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr[1:] - block.indptr[:-1])
    return dgl.create_block(
        (block.sources.long(), destinations), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
    )
