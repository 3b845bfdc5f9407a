"""Small blocks (the bipartite graph of one layer), with the special cases that a block can have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gnnexp.graph.block import Block


def make_block(num_dst: int, num_src: int, num_edges: int, seed: int = 0, *, parallel: bool = True) -> Block:
    """A random block with isolated destinations, parallel edges (with their occurrence) and self loops.

    Args:
        num_dst, num_src, num_edges: number of destinations, sources and edges; the last two destinations have no edges.
        seed: seed of all random draws.
        parallel: whether to add parallel edges, and to set `occurrence`.
    """
    rng = np.random.default_rng(seed)
    dst = np.sort(rng.integers(0, max(1, num_dst - 2), num_edges)) if num_edges else np.empty(0, np.int64)
    src = rng.integers(0, num_src, num_edges)
    src[: num_edges // 4] = dst[: num_edges // 4]
    if parallel and num_edges > 4:
        src[1::3] = src[0::3][: src[1::3].size]
    order = np.lexsort((src, dst))
    src, occurrence = src[order], np.zeros(num_edges, np.int32)
    for e in range(1, num_edges):
        if dst[e] == dst[e - 1] and src[e] == src[e - 1]:
            occurrence[e] = occurrence[e - 1] + 1
    ids = rng.permutation(10 * num_src)[:num_src].astype(np.int32)
    indptr = np.searchsorted(dst, np.arange(num_dst + 1))
    return Block(
        torch.from_numpy(indptr),
        torch.from_numpy(src.astype(np.int32)),
        torch.from_numpy(ids),
        num_dst,
        occurrence=torch.from_numpy(occurrence) if parallel else None,
    )


def typed(block: Block, num_types: int = 4, seed: int = 0) -> Block:
    """The same edges with random types. The last of `num_types` types has no edges."""
    kinds = np.random.default_rng(seed).integers(0, max(1, num_types - 1), block.num_edges, dtype=np.int32)
    return replace(block, edge_types=torch.from_numpy(kinds))


def looped(block: Block) -> Block:
    """The block with an added self loop as the last edge of each destination."""
    degree = (block.indptr[1:] - block.indptr[:-1]).tolist()
    parts, ends = torch.split(block.sources, degree), torch.arange(block.num_dst, dtype=torch.int32)
    sources = torch.cat([torch.cat((part, ends[d : d + 1])) for d, part in enumerate(parts)])
    more = torch.arange(block.num_dst + 1)
    return Block(block.indptr + more, sources, block.src_ids, block.num_dst, self_loops=True)


def awkward_blocks() -> dict[str, Block]:
    """Blocks by their special case: no edges, no destinations, a long row, 64-bit ids, types, added self loops."""
    plain = make_block(13, 29, 90)
    return {
        "multigraph": plain,
        "simple": make_block(9, 9, 20, 1, parallel=False),
        "no edges": make_block(5, 7, 0),
        "no destinations": make_block(0, 4, 0),
        "one destination": make_block(1, 1, 3),
        "long row": make_block(3, 700, 1500, 2, parallel=False),
        "64-bit ids": replace(plain, src_ids=plain.src_ids.long() + (1 << 33)),
        "typed": typed(plain),
        "self loops": looped(make_block(9, 12, 40, 3, parallel=False)),
        "destinations elsewhere": replace(plain, dst_positions=torch.arange(plain.num_dst) + 3),
    }
