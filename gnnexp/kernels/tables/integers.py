"""Integers of texts, if each text is as an integer is printed: `7` and `-7`, and not `07`, `+7`, `7.0` or ` 7`."""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled

_MINUS, _ZERO, _NINE = (np.uint8(ord(sign)) for sign in "-09")
_LARGEST = np.uint64(2**63 - 1)
_MOST_DIGITS = 19
_FRACTION = 2  # bytes of `.0`


def integers_of(data: np.ndarray, bounds: np.ndarray, point: int) -> tuple[np.ndarray, int]:
    """`[n]` int64 integers of texts, and the place of the first text that is none, or -1.

    Args:
        data: uint8 bytes of the texts.
        bounds: `[n + 1]` int64 bounds of the texts in `data`.
        point: code of the sign before a fraction of zero, which each text may have; 0: none may.
    """
    numbers = np.empty(bounds.size - 1, np.int64)
    parts = numba.get_num_threads()
    wrong = np.full(parts, -1, np.int64)
    _integers_of(data, bounds, np.uint8(point), numbers, wrong)
    bad = wrong[wrong >= 0]
    return numbers, int(bad.min()) if bad.size else -1


@compiled(nogil=True)
def _is_integer(data: np.ndarray, start: int, stop: int) -> bool:
    """Whether bytes are an integer as it is printed, of at most 19 digits."""
    first = start + 1 if start < stop and data[start] == _MINUS else start
    size = stop - first
    if size < 1 or size > _MOST_DIGITS or (data[first] == _ZERO and stop - start > 1):
        return False
    good = True
    for place in range(first, stop):
        good = good and _ZERO <= data[place] <= _NINE
    return good


@compiled(nogil=True, parallel=True)
def _integers_of(data: np.ndarray, bounds: np.ndarray, point: np.uint8, numbers: np.ndarray, wrong: np.ndarray) -> None:
    size, parts = bounds.size - 1, wrong.size
    for part in numba.prange(parts):
        for text in range(size * part // parts, size * (part + 1) // parts):
            start, stop = bounds[text], bounds[text + 1]
            if point and stop - start > _FRACTION and data[stop - 2] == point and data[stop - 1] == _ZERO:
                stop -= _FRACTION
            good = _is_integer(data, start, stop)
            value, negative = np.uint64(0), good and data[start] == _MINUS
            if good:
                for place in range(start + negative, stop):
                    value = value * np.uint64(10) + np.uint64(data[place] - _ZERO)
                good = value <= _LARGEST + np.uint64(negative)
            if not good:
                wrong[part] = text
                break
            numbers[text] = np.int64(-value) if negative else np.int64(value)


def warm_up() -> None:
    """Compile the kernels."""
    integers_of(np.frombuffer(b"7", np.uint8), np.frombuffer(np.arange(2).tobytes(), np.int64), 0)
