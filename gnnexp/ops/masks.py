"""The dropout masks of `gnnexp.kernels.rows.dropout` in int64 tensor arithmetic: slow, but for any device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.kernels.counter import Purpose, stream, streams
from gnnexp.kernels.rows.dropout import MUL1, MUL2, STEP
from gnnexp.kernels.words import LOW32, absorb, draw, shifted, signed
from gnnexp.ops.backend import Drop

_ADDED_LOOP = 0xFFFFFFFF
_LOW16 = 0xFFFF
_STEP, _MUL1, _MUL2 = (signed(int(word), bits=32) for word in (STEP, MUL1, MUL2))
_PURPOSES = (Purpose.DROPOUT, Purpose.ATTENTION_DROPOUT)


def mask_key(purpose: Purpose, layer: int, key: BatchKey) -> int:
    """The 64-bit key of a layer's masks in the batch `key`."""
    return stream(key.seed, purpose, key.epoch, key.step, key.micro, layer)


def mask_keys(purpose: Purpose, num_layers: int, key: BatchKey) -> list[int]:
    """`mask_key` of the layers 0 to `num_layers - 1`."""
    return streams(num_layers, key.seed, purpose, key.epoch, key.step, key.micro)


class _Brought(NamedTuple):
    """The keys of a micro-batch: `[2][L]` on the host, and `[2, L]` int64 on the GPU."""

    key: BatchKey
    keys: list[list[int]]
    table: Tensor


class DropKeys:
    """The keys of all masks of a step on a GPU, at fixed addresses.

    One asynchronous copy per step writes the keys; a micro-batch with separate draws has its own copy. Before a
    captured graph runs again, `bring` writes the keys of the next step, so the graph draws new masks.

    Args:
        num_layers: L.
        device: the GPU.
    """

    def __init__(self, num_layers: int, device: torch.device) -> None:
        self._num_layers, self._device = num_layers, device
        self._held: dict[int, _Brought] = {}  # by micro-batch: a step may have several

    def both(self, purpose: Purpose, layer: int, key: BatchKey) -> tuple[int, Tensor]:
        """`mask_key` here, and on the device: int64 without dimensions, until the micro-batch's next step begins."""
        held, row = self._brought(key), _PURPOSES.index(purpose)
        return held.keys[row][layer], held.table[row, layer]

    def bring(self, key: BatchKey) -> Tensor:
        """`[2, L]` int64: write the keys of batch `key` over the former keys of its micro-batch, once per step."""
        return self._brought(key).table

    def _brought(self, key: BatchKey) -> _Brought:
        held = self._held.get(key.micro)
        if held is not None and held.key == key:
            return held
        keys = [mask_keys(purpose, self._num_layers, key) for purpose in _PURPOSES]
        shape = len(_PURPOSES), self._num_layers
        table = torch.empty(shape, dtype=torch.int64, device=self._device) if held is None else held.table
        words = torch.tensor([[signed(word) for word in row] for row in keys])
        table.copy_(words.pin_memory(), non_blocking=True)
        self._held[key.micro] = _Brought(key, keys, table)
        return self._held[key.micro]


def _key(drop: Drop) -> Tensor | int:
    return signed(drop.key) if drop.word is None else drop.word


def _pair_bits(low: Tensor, high: Tensor, pair: Tensor) -> Tensor:
    """32 random bits for each row and column pair, as int32; shapes broadcast. The row's key is in two int32 words."""
    word = low + pair * _STEP
    word = (word ^ shifted(word, 16)) * _MUL1
    word = ((word ^ shifted(word, 15)) + high) * _MUL2
    return word ^ shifted(word, 16)


def _row_keys(ids: Tensor, drop: Drop) -> tuple[Tensor, Tensor]:
    """`[N]` int32 each: lower and upper half of the words of rows."""
    halves = absorb(_key(drop), ids.long()).view(torch.int32).view(-1, 2)
    return halves[:, 0], halves[:, 1]


def kept_entries(ids: Tensor, columns: Tensor, drop: Drop, num_columns: int) -> Tensor:
    """`[N]` bool: whether the values at (id, column) are kept."""
    half = (num_columns + 1) // 2
    columns = columns.int()
    upper = columns >= half
    bits = _pair_bits(*_row_keys(ids, drop), torch.where(upper, columns - half, columns))
    return torch.where(upper, shifted(bits, 16), bits & _LOW16) >= drop.threshold


def kept_columns(ids: Tensor, first: int, width: int, drop: Drop, num_columns: int) -> Tensor:
    """`[N, width]` bool: whether values are kept, of rows `ids` `[N]` and columns from `first` on of the whole matrix.

    Columns c and c + half share a word of 32 bits, so a mask of the whole matrix has one word for two values.
    """
    half = (num_columns + 1) // 2
    lower, upper = range(first, min(first + width, half)), range(max(first - half, 0), first + width - half)
    pairs = [pair for pair in (lower, upper) if pair] or [range(0)]
    begin, end = min(pair.start for pair in pairs), max(pair.stop for pair in pairs)
    low, high = _row_keys(ids, drop)
    pair = torch.arange(begin, end, dtype=torch.int32, device=ids.device)
    bits = _pair_bits(low.unsqueeze(1), high.unsqueeze(1), pair)
    parts = [bits[:, lower.start - begin : lower.stop - begin] & _LOW16] if lower else []
    parts += [shifted(bits[:, upper.start - begin : upper.stop - begin], 16)] if upper else []
    return (torch.cat(parts, 1) if parts else bits) >= drop.threshold


def kept_edges(block: Block, destinations: Tensor, heads: int, drop: Drop) -> Tensor:
    """`[E, heads]` bool: whether weights are kept, by edge identity; `destinations` `[E]` are positions."""
    dst, src = block.dst_ids.long()[destinations], block.src_ids.long()[block.sources.long()]
    state = draw(absorb(_key(drop), dst), src)
    kind = _kind(block)
    state = torch.where(kind != 0, absorb(state, kind), state)
    columns = []
    for head in range(heads):
        word = state if head < 4 else draw(state, head >> 2)
        columns.append(shifted(word, 16 * (head & 3)) & 0xFFFF if head & 3 else word & 0xFFFF)
    return torch.stack(columns, 1) >= drop.threshold


def _kind(block: Block) -> Tensor:
    """`[E]` type and occurrence in one word; an added self loop has occurrence -1."""
    kind = torch.zeros(block.num_edges, dtype=torch.int64, device=block.sources.device)
    if block.edge_types is not None:
        kind |= (block.edge_types.long() & LOW32) << 32
    if block.occurrence is not None:
        kind |= block.occurrence.long() & LOW32
    elif block.self_loops:
        kind[block.indptr[1:] - 1] |= _ADDED_LOOP
    return kind
