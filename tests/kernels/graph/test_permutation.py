import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.permutation import bits_of, permuted, unpermuted

keys = st.integers(0, 2**64 - 1)


@compiled()
def images(count: int, key: np.uint64) -> np.ndarray:
    found = np.empty((2, count), np.int64)
    for value in range(count):
        found[0, value] = permuted(value, count, bits_of(count), key)
        found[1, value] = unpermuted(found[0, value], count, bits_of(count), key)
    return found


@compiled()
def there_and_back(value: int, count: int, key: np.uint64) -> tuple[int, int]:
    image = permuted(value, count, bits_of(count), key)
    return image, unpermuted(image, count, bits_of(count), key)


@given(st.integers(1, 3000), keys)
def test_every_value_has_its_own_image_and_comes_back(count: int, key: int) -> None:
    there, back = images(count, np.uint64(key))
    assert np.array_equal(np.sort(there), np.arange(count))
    assert np.array_equal(back, np.arange(count))


@given(st.integers(1, 2**40), st.integers(0, 2**40), keys)
def test_ranges_of_any_size(count: int, value: int, key: int) -> None:
    image, back = there_and_back(value % count, count, np.uint64(key))
    assert 0 <= image < count and back == value % count


def test_images_are_spread_evenly() -> None:
    cells = np.zeros((10, 10))
    for key in range(400):
        cells[np.arange(10), images(10, np.uint64(key * 977))[0]] += 1
    # Chi square of 81 degrees of freedom: mean 81, deviation 12.7.
    assert ((cells - 40) ** 2 / 40).sum() < 81 + 4 * 12.7
