from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.tables.numbers import look_up, mark
from gnnexp.kernels.tables.texts import Dictionary


def packed(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return np.frombuffer(b"".join(texts) + b"\0", np.uint8), bounds


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=40), min_size=1, max_size=4))
def test_texts_are_numbered_as_they_first_occur(batches: list[list[bytes]]) -> None:
    dictionary, known = Dictionary(), dict[bytes, int]()
    for batch in batches:
        found = dictionary.numbers(*packed(batch))
        assert found.tolist() == [known.setdefault(one, len(known)) for one in batch]
    data, bounds = dictionary.texts()
    assert [data[low:high].tobytes() for low, high in pairwise(bounds)] == list(known)


def test_a_dictionary_grows_with_its_texts() -> None:
    dictionary, texts = Dictionary(), [b"%d" % number for number in range(300_000)]
    for start in (0, 100_000, 200_000, 50_000):
        found = dictionary.numbers(*packed(texts[start : start + 100_000]))
        assert (found == np.arange(start, start + 100_000)).all()
    assert dictionary.count == 300_000 and dictionary.num_bytes > 8 * 450_000


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
def test_numbers_outside_of_the_table_are_unknown(bits: int, data: st.DataObject) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    ids = data.draw(st.lists(st.integers(least, most), min_size=1, max_size=50))
    low = data.draw(st.integers(least, most - 2))
    table, values = np.array([7, -1, 9], np.int32), np.array([*ids, low, low + 1, low + 2], f"int{bits}")
    found = np.empty(values.size, np.int32)
    look_up(values, low, table, found)
    assert found.tolist() == [table[one - low] if low <= one < low + 3 else -1 for one in values.tolist()]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_numbers_are_marked(dtype: type) -> None:
    present = np.zeros(5, np.bool_)
    mark(np.array([-1, 2, 2], dtype), -1, present)
    assert present.tolist() == [True, False, False, True, False]
