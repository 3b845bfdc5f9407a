"""Different texts: numbers in the order in which they first occur (a hash table), and their ascending order."""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

# How many texts ahead the slot, the bounds of the known text in this slot, and its bytes are requested. A slot is found
# before bounds are requested, and stays right: slots are only added.
_SLOT_AHEAD, _BOUNDS_AHEAD, _BYTES_AHEAD = 24, 16, 8
_FIRST_SLOTS = 1 << 16
_NUMBER = np.uint64(0xFFFFFFFF)  # the lower half of a slot


@compiled(nogil=True)
def _hash(data: np.ndarray, start: int, stop: int) -> np.uint64:
    """32 bits that depend on all bytes: FNV-1a, mixed."""
    found = np.uint64(14695981039346656037)
    for place in range(start, stop):
        found = (found ^ np.uint64(data[place])) * np.uint64(1099511628211)
    found = (found ^ (found >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    return found >> np.uint64(32)


@compiled(nogil=True)
def _place(slots: np.ndarray, wanted: np.uint64, place: np.uint64) -> np.uint64:
    """The first slot from `place` on that is empty or has the hash `wanted`."""
    mask = np.uint64(slots.size - 1)
    while slots[place] != np.uint64(0) and slots[place] >> np.uint64(32) != wanted:
        place = (place + np.uint64(1)) & mask
    return place


@compiled(inline="always")
def _is_same(kept: np.ndarray, begin: int, data: np.ndarray, first: int, length: int) -> bool:
    """Whether the `length` bytes from `begin` and from `first` on are the same."""
    byte = 0
    while byte < length and kept[begin + byte] == data[first + byte]:
        byte += 1
    return byte == length


@compiled(nogil=True)
def number_texts(
    data: np.ndarray,
    offsets: np.ndarray,
    slots: np.ndarray,
    kept: np.ndarray,
    starts: np.ndarray,
    count: int,
    add: bool,
    out: np.ndarray,
) -> int:
    """The number of each text. Returns how many texts are known afterwards.

    Args:
        data: uint8 bytes of the texts.
        offsets: `[n + 1]` int64 bounds of the texts in `data`.
        slots: `[power of 2]` uint64 hash table, 0 = empty; upper half: hash, lower half: number of the text plus 1.
        kept: uint8 bytes of known texts; with `add`, with room for all new ones.
        starts: int64 bounds of known texts in `kept`: `[>= count + 1]`, or with `add` `[>= count + n + 1]`.
        count: number of known texts.
        add: whether unknown texts become known; otherwise their number is -1.
        out: `[n]` int32, receives the numbers.
    """
    size, mask, half = offsets.size - 1, np.uint64(slots.size - 1), np.uint64(32)
    hashes, places = np.zeros(size + _SLOT_AHEAD, np.uint64), np.zeros(size + _SLOT_AHEAD, np.uint64)
    for text in range(size):
        hashes[text] = _hash(data, offsets[text], offsets[text + 1])
    for text in range(-_SLOT_AHEAD, size):
        prefetch(slots, hashes[text + _SLOT_AHEAD] & mask)
        ahead = max(0, text + _BOUNDS_AHEAD)
        places[ahead] = _place(slots, hashes[ahead], hashes[ahead] & mask)
        prefetch(starts, np.int64(slots[places[ahead]] & _NUMBER) - 1)
        ahead = max(0, text + _BYTES_AHEAD)
        known = np.int64(slots[places[ahead]] & _NUMBER) - 1
        if known >= 0:
            prefetch(kept, starts[known])
        if text < 0:
            continue
        first, length = offsets[text], offsets[text + 1] - offsets[text]
        place = places[text]
        while True:
            place = _place(slots, hashes[text], place)
            slot = slots[place]
            if slot == np.uint64(0):
                out[text] = -1
                if add:
                    begin = starts[count]
                    for byte in range(length):
                        kept[begin + byte] = data[first + byte]
                    out[text] = count
                    count += 1
                    starts[count] = begin + length
                    slots[place] = (hashes[text] << half) | np.uint64(count)
                break
            known = np.int64(slot & _NUMBER) - 1
            if starts[known + 1] - starts[known] == length and _is_same(kept, starts[known], data, first, length):
                out[text] = known
                break
            place = (place + np.uint64(1)) & mask
    return count


@compiled(nogil=True)
def _move(old: np.ndarray, slots: np.ndarray) -> None:
    """Enter all texts of a hash table into a larger empty one."""
    mask = np.uint64(slots.size - 1)
    for slot in old:
        if slot != np.uint64(0):
            place = (slot >> np.uint64(32)) & mask
            while slots[place] != np.uint64(0):
                place = (place + np.uint64(1)) & mask
            slots[place] = slot


@compiled(nogil=True, parallel=True)
def _words(parts: int, data: np.ndarray, offsets: np.ndarray, texts: np.ndarray, depth: int, out: np.ndarray) -> None:
    """`out[i]`: the bytes `depth` to `depth + 7` of text `texts[i]` as one number, the first byte highest; 0 = none."""
    for part in numba.prange(parts):
        for place in range(texts.size * part // parts, texts.size * (part + 1) // parts):
            start, stop = offsets[texts[place]] + depth, offsets[texts[place] + 1]
            word = np.uint64(0)
            for byte in range(start, start + 8):
                word = (word << np.uint64(8)) | np.uint64(data[byte] if byte < stop else 0)
            out[place] = word


@compiled(nogil=True)
def _shared(data: np.ndarray, offsets: np.ndarray) -> int:
    """Number of first bytes that all texts have in common."""
    shared = offsets[1] - offsets[0]
    for text in range(1, offsets.size - 1):
        shared, byte = min(shared, offsets[text + 1] - offsets[text]), 0
        while byte < shared and data[offsets[text] + byte] == data[offsets[0] + byte]:
            byte += 1
        shared = byte
    return shared


def ascending(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """`[n]` int64 places of different texts in ascending order of their bytes.

    Texts are sorted by eight bytes at a time: first all texts, then those that are equal so far.

    Args:
        data: uint8 bytes of the texts.
        offsets: `[n + 1]` int64 bounds of the texts in `data`.
    """
    order = np.arange(offsets.size - 1)
    if order.size < 2:
        return order
    depth, longest = _shared(data, offsets), int(np.diff(offsets).max())
    keys = np.empty(order.size, np.uint64)
    _words(numba.get_num_threads(), data, offsets, order, depth, keys)
    order = np.argsort(keys)
    keys = keys[order]
    # Places in `order` with texts that are equal so far, and a number for each group of equal ones.
    places, groups = _equal(np.arange(order.size), keys[1:] == keys[:-1])
    while places.size and depth < longest:
        depth += 8
        texts, keys = order[places], np.empty(places.size, np.uint64)
        _words(numba.get_num_threads(), data, offsets, texts, depth, keys)
        sorting = np.lexsort((keys, groups))
        order[places], keys = texts[sorting], keys[sorting]
        longest = int((offsets[texts + 1] - offsets[texts]).max())
        places, groups = _equal(places, (keys[1:] == keys[:-1]) & (groups[1:] == groups[:-1]))
    # What is left differs in the number of zero bytes at the end.
    texts = order[places]
    order[places] = texts[np.lexsort((offsets[texts + 1] - offsets[texts], groups))]
    return order


def _equal(places: np.ndarray, same: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of elements that equal a neighbour, and the number of their group; `same[i]`: i + 1 equals i."""
    after, before = np.append(False, same), np.append(same, False)
    chosen = after | before
    return places[chosen], np.cumsum(~after)[chosen]


class Dictionary:
    """Different texts. `numbers` adds those that are new."""

    def __init__(self) -> None:
        self.count = 0
        self._slots = np.zeros(_FIRST_SLOTS, np.uint64)
        self._kept, self._starts = np.empty(_FIRST_SLOTS, np.uint8), np.zeros(_FIRST_SLOTS, np.int64)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return self._slots.nbytes + self._kept.nbytes + self._starts.nbytes

    def numbers(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """`[n]` int32 numbers of texts with the bytes `data` uint8 and the bounds `offsets` `[n + 1]` int64."""
        self._make_room(offsets.size - 1, int(offsets[-1] - offsets[0]))
        out = np.empty(offsets.size - 1, np.int32)
        self.count = number_texts(data, offsets, self._slots, self._kept, self._starts, self.count, True, out)
        return out

    def known(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """As `numbers`, but adds no text: the number of an unknown text is -1."""
        out = np.empty(offsets.size - 1, np.int32)
        number_texts(data, offsets, self._slots, self._kept, self._starts, self.count, False, out)
        return out

    def texts(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes and bounds `[count + 1]` of all texts, in the order of their numbers."""
        return self._kept, self._starts[: self.count + 1]

    def _make_room(self, texts: int, num_bytes: int) -> None:
        """Room for new texts; at most three quarters of the slots are in use."""
        self._starts = _grown(self._starts, self.count + texts + 1)
        self._kept = _grown(self._kept, int(self._starts[self.count]) + num_bytes)
        size = self._slots.size
        while 3 * size < 4 * (self.count + texts):
            size *= 2
        if size > self._slots.size:
            old, self._slots = self._slots, np.zeros(size, np.uint64)
            _move(old, self._slots)


def _grown(values: np.ndarray, size: int) -> np.ndarray:
    if size <= values.size:
        return values
    grown = np.empty(max(size, values.size * 3 // 2), values.dtype)
    grown[: values.size] = values
    return grown


def warm_up() -> None:
    """Compile the kernels."""
    found, data = Dictionary(), np.frombuffer(b"ab", np.uint8)
    found.numbers(data, np.frombuffer(np.arange(3).tobytes(), np.int64))
    found.known(data, np.arange(3))
    _move(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
    ascending(*found.texts())
    Dictionary().numbers(*found.texts())
