"""Chunks that stay on the device: their topology and their static weights cross once in a run, not in every visit.

A fixed prefix of a rank's chunks stays, as many as fit. Chunks are visited in a cycle, in which a cache of the chunks
that were visited last would always miss.

NeutronTP and HongTu cut a graph because the device is too small for all of it. Neither paper says that a chunk must
leave a device that has room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.shape_tensor import has_values


@dataclass(eq=False)
class _Kept:
    """What of a chunk is on the device.

    Attributes:
        block: the chunk's block there; None before its first visit.
        arrays: topology that has crossed: arrays of the host's block and of its transpose.
        weights: static weights of its edges, by the memory of all edges' weights.
    """

    block: Block | None = None
    arrays: list[Tensor] = field(default_factory=list)
    weights: dict[int, Tensor] = field(default_factory=dict)

    def tensors(self) -> Iterator[Tensor]:
        yield from self.arrays
        yield from self.weights.values()


class ResidentChunks:
    """The chunks that stay, and what of them has crossed.

    Args:
        blocks: blocks of the chunks, on the host.
        static: `[E, K]` weights of all edges that are the same in every epoch.
    """

    def __init__(self, blocks: Iterable[Block] = (), static: Iterable[Tensor] = ()) -> None:
        self._kept = {block: _Kept() for block in blocks}
        self._static = list(static)  # alive, so that their memory is not another tensor's

    def __contains__(self, block: Block) -> bool:
        """Whether a block's chunk stays."""
        return block in self._kept

    @property
    def num_bytes(self) -> int:
        """Bytes on the device."""
        return sum(tensor.nbytes for tensor in self.tensors())

    @property
    def num_chunks(self) -> int:
        """Number of chunks that have crossed."""
        return sum(bool(kept.arrays) for kept in self._kept.values())

    @property
    def is_empty(self) -> bool:
        """Whether no chunk stays."""
        return not self._kept

    def tensors(self) -> Iterator[Tensor]:
        """Everything that has crossed. On CPU topology is not copied: its arrays are the host's."""
        for kept in self._kept.values():
            yield from kept.tensors()

    def missing(self, block: Block, arrays: Iterable[Tensor]) -> list[Tensor]:
        """Arrays of a block that have not crossed: all of them, if its chunk does not stay."""
        kept = self._kept.get(block)
        here = set() if kept is None else {id(array) for array in kept.arrays}
        return [array for array in arrays if id(array) not in here]

    def crossed(self, block: Block, arrays: Iterable[Tensor]) -> None:
        """Arrays of a block have crossed, and stay if its chunk does."""
        if block in self._kept:
            self._kept[block].arrays += self.missing(block, arrays)

    def on_device(self, block: Block, device: torch.device) -> Block:
        """The block on the device. It has no derived values, so these end with the visit."""
        kept = self._kept.get(block)
        if kept is None or block.sources.device == device:
            return block.to(device)
        if kept.block is None:
            kept.block = block.to(device)
        return replace(kept.block)

    def weights_of(self, block: Block, edges: Tensor) -> Tensor | None:
        """The static weights of a block's edges; None if they have not crossed. `edges` are those of all edges."""
        kept = self._kept.get(block)
        return None if kept is None else kept.weights.get(memory_of(edges))

    def keep_weights(self, block: Block, edges: Tensor, own: Tensor) -> None:
        """Keep the weights `own` of a block's edges, if its chunk stays and they are static."""
        if (
            block in self._kept
            and edges.numel()
            and any(memory_of(static) == memory_of(edges) for static in self._static)
        ):
            self._kept[block].weights[memory_of(edges)] = own


def prefix(
    blocks: Sequence[Block], budget: float, static: Sequence[Tensor], *, reads_transpose: bool
) -> ResidentChunks:
    """The longest prefix of the chunks' blocks that fits in `budget` bytes, with static weights of their edges.

    Args:
        blocks: blocks of all chunks, in order.
        budget: bytes of the device for them.
        static: `[E, K]` weights of all edges that are the same in every epoch.
        reads_transpose: whether the transpose of a chunk crosses too.
    """
    of_edge = sum(weights[:1].nbytes for weights in static)
    chosen, used = [], 0
    for block in blocks:
        used += most_bytes(block, reads_transpose=reads_transpose) + of_edge * block.num_edges
        if used > budget:
            break
        chosen.append(block)
    return ResidentChunks(chosen, static)


def most_bytes(block: Block, *, reads_transpose: bool) -> int:
    """Bytes of a block's topology if every array crosses: its own, degrees, and those of its transpose."""
    degrees = 0 if block.in_degree is not None else 8 * block.num_dst
    turned = 8 * (block.num_src + 1) + (4 + 8) * block.num_edges if reads_transpose else 0
    return block.nbytes() + degrees + turned


def memory_of(rows: Tensor) -> int:
    """The address of the memory in which rows lie, the same for all slices of an array."""
    return rows.untyped_storage().data_ptr() if has_values(rows) else 0
