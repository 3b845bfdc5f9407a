"""A text is an integer if the integer is printed like it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.tables.integers import integers_of

INT64 = st.integers(-(2**63), 2**63 - 1)


def packed(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of texts, and their bounds; both read-only, as Arrow has them."""
    encoded = [one.encode() for one in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded) or b"\0", np.uint8), np.frombuffer(bounds.tobytes(), np.int64)


@given(values=st.lists(st.tuples(INT64, st.booleans()), max_size=40), point=st.sampled_from(["", ".", ","]))
def test_integers_come_back(values: list[tuple[int, bool]], point: str) -> None:
    texts = [f"{one}{point}0" if point and pointed else str(one) for one, pointed in values]
    found, wrong = integers_of(*packed(texts), ord(point) if point else 0)
    assert wrong == -1 and found.tolist() == [one for one, _ in values]


@given(
    values=st.lists(INT64, max_size=9),
    other=st.text("0123456789+-.,eE_x ", max_size=21),
    point=st.sampled_from(["", ".", ","]),
)
def test_any_other_text_is_found(values: list[int], other: str, point: str) -> None:
    digits = other.removesuffix(f"{point}0") if point else other
    number = int(digits) if digits.removeprefix("-").isdigit() else None
    good = number is not None and str(number) == digits and -(2**63) <= number < 2**63
    _, wrong = integers_of(*packed([*map(str, values), other]), ord(point) if point else 0)
    assert wrong == (-1 if good else len(values))


@pytest.mark.parametrize("text", ["", "-", "-0", "00", "+1", "1.", ".0", "٣", str(2**63), str(-(2**63) - 1), "9" * 30])
def test_what_python_reads_otherwise_is_none(text: str) -> None:
    assert integers_of(*packed(["5", text, "x"]), 0)[1] == 1
