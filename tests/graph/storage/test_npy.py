"""Headers of `.npy` files are checked before anything is mapped: numpy's own `load` died of some with SIGFPE."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from malformed import claims, npy_of

from gnnexp.errors import DataError
from gnnexp.graph.storage.npy import file_header, map_array

HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing of a size": (claims("|V0", (-1,), bytes(640)), "numbers expected"),
    "no text of a size": (claims("|S0", (-1,), bytes(640)), "numbers expected"),
    "no characters of a size": (claims("<U0", (-1,), bytes(640)), "numbers expected"),
    "negative": (claims("<f4", (-1,), bytes(640)), "shape"),
    "truth as a size": (claims("<f4", (True,), bytes(4)), "shape"),
    "no tuple": (npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", bytes(12)), "shape"),
    "too many dimensions": (claims("<f4", (1,) * 70, bytes(4)), "shape"),
    "too short": (claims("<f4", (4,), bytes(15)), "must have 144 bytes"),
    "goes on": (claims("<f4", (4,), bytes(17)), "must have 144 bytes"),
    "2^61 numbers": (claims("<f8", (1 << 61,)), "must have"),
    "sizes beyond 64 bits": (claims("<f8", (1 << 64, 0)), "shape"),
    "nothing, of a size beyond memory": (claims("<f8", (1 << 61, 1 << 61, 0)), "can be mapped"),
    "no dtype": (claims("<q9", (1,)), "numpy file"),
    "later format": (npy_of("{", b"", b"\x02\x00", 2**31), "format"),
    "an archive": (b"PK\x03\x04" + bytes(200), "archive"),
    "empty": (b"", "starts with"),
    "half a header": (claims("<f4", (4,))[:60], "numpy file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_header_may_not_say(name: str, tmp_path: Path) -> None:
    content, word = HOSTILE[name]
    path = tmp_path / "features.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=word) as caught:
        map_array(path, file_header(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i8").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.float32(3),
        np.zeros((0, 5)),
        np.zeros((5, 0), np.uint8),
        np.array([True, False]),
        np.zeros((2, 1, 3), np.float16),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_come_back(array: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    found = map_array(path, file_header(path))
    assert found.shape == array.shape and found.dtype == array.dtype
    assert np.array_equal(found, array) and not (found.size and found.flags.writeable)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npy='No such file or directory'"):
        file_header(tmp_path / "absent.npy")
