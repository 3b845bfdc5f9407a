from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.tables.numbers import look_up, mark
from gnnexp.kernels.tables.texts import Dictionary, ascending


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


def test_unknown_texts_are_found_and_not_added() -> None:
    dictionary = Dictionary()
    assert dictionary.known(*packed([b"a", b""])).tolist() == [-1, -1], "nothing is known yet"
    dictionary.numbers(*packed([b"a", b"bc", b"", b"a"]))
    assert dictionary.known(*packed([b"bc", b"b", b"", b"c", b"a"])).tolist() == [1, -1, 2, -1, 0]
    assert dictionary.count == 3
    assert dictionary.numbers(*packed([b"b", b"a", b"b"])).tolist() == [3, 0, 3]
    data, bounds = dictionary.texts()
    assert [data[low:high].tobytes() for low, high in pairwise(bounds)] == [b"a", b"bc", b"", b"b"]


# Texts that differ early, late, behind more than eight equal bytes, or only in zero bytes at their ends.
_PIECES = st.sampled_from([b"", b"\0", b"a", b"\xff", b"b\0", b"12345678", b"123456789abcdefgh"])
_TEXTS = st.lists(_PIECES, max_size=4).map(b"".join)


@given(st.lists(_TEXTS, unique=True, max_size=60))
def test_different_texts_in_ascending_order(texts: list[bytes]) -> None:
    order = ascending(*packed(texts))
    assert [texts[place] for place in order] == sorted(texts)


@pytest.mark.parametrize("prefix", [b"", b"http://example.org/entity/"])
def test_many_texts_in_ascending_order(prefix: bytes) -> None:
    draw = np.random.default_rng(0)
    texts = list({prefix + b"%x" % (value**3) for value in draw.integers(0, 2**20, 20_000).tolist()})
    assert [texts[place] for place in ascending(*packed(texts))] == sorted(texts)


def test_equal_texts_stay_together() -> None:
    order = ascending(*packed([b"b", b"a", b"b"]))
    assert order[0] == 1 and sorted(order) == [0, 1, 2]


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
