"""What crosses between ranks comes back equal, and what a stranger sends executes nothing."""

from __future__ import annotations

import json
import math
import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.wire import WireError, pack, unpack

_HOUSE = Path(__file__).parents[2] / "gnnexp"
_NUMBERS = st.sampled_from(["?", "u1", "<i4", ">i8", "<f4", "<f8", "<f2"]).map(np.dtype)
_PARTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=20),
    _NUMBERS.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))),
    st.sampled_from([torch.float32, torch.bfloat16, slice(1, None), slice(None, 4, 2)]),
    st.lists(st.floats(width=16), max_size=4).map(lambda values: torch.tensor(values).to(torch.bfloat16)),
    st.lists(st.integers(-9, 9), max_size=4).map(torch.tensor),
)
_KEYS = st.one_of(st.text(max_size=4), st.integers(), st.tuples(st.text(max_size=3), st.text(max_size=3)))
_VALUES = st.recursive(
    _PARTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(_KEYS, inner, max_size=3)
    ),
)


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.float().nan_to_num(7), other.float().nan_to_num(7))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return repr(one) == repr(other)  # NaN is equal to NaN here


@given(_VALUES)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert equal(unpack(pack(value)), value)


@given(st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1)))
def test_numbers_of_numpy_are_numbers(value: float) -> None:
    found = unpack(pack({"a": np.float64(value), "b": np.int64(3), "c": np.bool_(True)}))
    assert found["b"] == 3 and found["c"] is True and (found["a"] == np.float64(value) or math.isnan(value))


class Executing:
    def __reduce__(self) -> tuple[Any, ...]:
        raise AssertionError("somebody pickles")


@pytest.mark.parametrize(
    "value",
    [
        Executing(),
        [{"a": Executing()}],
        {1, 2},
        np.array([Executing()]),
        np.array(["text"]),
        np.zeros(1, "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        ValueError("x"),
        Path("x"),
        1j,
        torch.eye(2).to_sparse(),
        torch.empty(2, device="meta"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_do_not_cross(value: Any) -> None:
    with pytest.raises(TypeError, match="does not cross between ranks"):
        pack(value)


def message(plain: Any, rest: bytes = b"") -> bytes:
    text = json.dumps(plain).encode()
    return len(text).to_bytes(8, "little") + text + rest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        pickle.dumps([1, 2]),
        message([1]) + b"more",
        message({"bytes": 4}, b"abc"),
        message({"bytes": -1}),
        message({"bytes": True}, b""),
        message({"array": ["O", [1]]}, b"12345678"),
        message({"array": ["<i8", [1 << 62]]}),
        message({"array": ["<i8", [-1, -1]]}, b"12345678"),
        message({"array": ["<i8,O", [1]]}),
        message({"array": [1, 2, 3]}),
        message({"array": ["V8", [1]]}, b"12345678"),
        message({"tensor": ["Tensor", [1]]}, b"1234"),
        message({"x": 1}),
        message({"tensor": ["float32", [2]]}, b"1234"),
        message({"dtype": "load"}),
        message({"slice": ["a", 1, 2]}),
        message({"map": [[{"map": []}, 1]]}),
        message({"map": [[1]]}),
        message({"a": 1, "b": 2}),
        message({}),
        message({"tuple": 3}),
        (3).to_bytes(8, "little") + b"{'a",
        (9).to_bytes(8, "little") + b"[" * 9,
        (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_no_rank_sends_is_refused(content: bytes) -> None:
    with pytest.raises(WireError, match="peer"):
        unpack(content)


@given(_VALUES, st.data())
def test_damaged_messages_are_values_or_refused(value: Any, data: st.DataObject) -> None:
    content = bytearray(pack(value))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for one in (content, content[:cut]):
        try:
            unpack(bytes(one))
        except WireError:
            continue


def test_no_pickle_crosses_between_ranks() -> None:
    """Torch's exchanges of objects are pickles, too. What may read pickles: own kernels, and ranks of tests."""
    words = ("all_gather_object", "broadcast_object", "gather_object(", "scatter_object", "send_object", "pickle.load")
    found = {
        str(file.relative_to(_HOUSE))
        for file in _HOUSE.rglob("*.py")
        if any(word in file.read_text() for word in words)
    }
    assert found == {"kernels/versions.py", "testing/ranks.py"}


def test_an_announced_size_is_compared_with_the_memory() -> None:
    asked: list[torch.Tensor] = []

    def gathered(own: torch.Tensor) -> list[torch.Tensor]:
        asked.append(own)
        return [own, torch.tensor([1 << 60])]

    timer = SimpleNamespace(activity=SimpleNamespace(exchange=nullcontext))
    rank: Any = SimpleNamespace(size=2, _timer=timer, _gathered=gathered)
    with pytest.raises(WireError, match="announce messages"):
        Communicator.gather_objects(rank, [1])
    assert len(asked) == 1, "no message is waited for"
