import io
import pickle
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gnnexp.datasets.reading.pickled import PickledDict
from gnnexp.datasets.reading.unpickle import Pickles, as_array, as_csr, as_object
from gnnexp.errors import DataError


def load(value: object, protocol: int = 2) -> object:
    return Pickles(pickle.dumps(value, protocol=protocol), "some.pkl").load()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["<f4", "<i8", ">i4", "|b1", "<u2"])
def test_arrays_come_back(protocol: int, dtype: str) -> None:
    array = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    value = load(array, min(protocol, 4))
    assert np.array_equal(as_array(value, "k"), array)
    fortran = np.asfortranarray(array)
    assert np.array_equal(as_array(load(fortran), "k"), array)


def test_old_scipy_matrices_come_back() -> None:
    """Published files name `scipy.sparse.csr`, a module that SciPy is going to remove."""
    matrix = scipy.sparse.random(20, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
    content = pickle.dumps(matrix, protocol=2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    found = as_csr(Pickles(content, "k").load(), "k")
    assert np.array_equal(found.toarray(), matrix.toarray())


def test_object_in_a_0d_array() -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(3, dtype=np.float32))
    array = np.empty((), object)
    array[()] = matrix
    assert as_csr(as_object(load(array), "k"), "k").nnz == 3


@pytest.mark.parametrize("protocol", range(6))
def test_what_executes_is_refused(protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path(trace).mkdir.__func__, (Path(trace),)  # type: ignore[attr-defined]

    with pytest.raises(DataError):
        load([1, {"a": Bomb()}], protocol)
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1+1'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
        b"\x80\x02cnumpy\nndarray\nN\x86b.",
        b"\x80\x02c_codecs\nencode\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
        b"\x80\x02K\x01r\xff\xff\xff\x7f.",
        b"\x80\x02T\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",
        b"P1\n.",
        b"",
        b"not a pickle",
        b"(" * 100,
    ],
)
def test_hostile_pickles_end_in_a_data_error(content: bytes) -> None:
    with pytest.raises(DataError, match=r"some\.pkl"):
        Pickles(content, "some.pkl").load()


def test_stand_ins_cannot_be_changed_by_a_pickle() -> None:
    """BUILD with slot state would set attributes on a class, and change every later load."""
    before = as_array(load(np.arange(3)), "k")
    for name in (b"numpy\nndarray", b"numpy\ndtype", b"_codecs\nencode", b"collections\ndefaultdict"):
        content = b"\x80\x02c" + name + b"\nN}X\x0c\x00\x00\x00__setstate__NsX\x01\x00\x00\x00aNs\x86b."
        with pytest.raises(DataError):
            Pickles(content, "k").load()
    assert np.array_equal(as_array(load(np.arange(3)), "k"), before)


def test_declared_shapes_must_be_those_of_the_bytes() -> None:
    content = pickle.dumps(np.zeros(3, np.uint8), protocol=2)
    shape = b"K\x03\x85"  # BININT1 3, TUPLE1
    assert content.count(shape) == 1
    value = Pickles(content.replace(shape, b"K\xff\x85"), "k").load()
    with pytest.raises(DataError, match="3 bytes"):
        as_array(value, "k")


@pytest.mark.parametrize("state", [{}, {"_shape": (3, 3)}, {"_shape": "x"}, {"_shape": (2**40, 3)}])
def test_malformed_sparse_matrices_are_refused(state: dict[str, object]) -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(2))
    matrix.__dict__.clear()
    matrix.__dict__.update(state)
    with pytest.raises(DataError):
        as_csr(load(matrix), "k")


def test_sparse_matrices_are_checked() -> None:
    for field, wrong in (("indices", [0, 7]), ("indptr", [0, 5, 2]), ("indptr", [1, 1, 2]), ("data", [1.0])):
        matrix = scipy.sparse.csr_matrix(np.eye(2))
        setattr(matrix, field, np.array(wrong, dtype=getattr(matrix, field).dtype))
        with pytest.raises(DataError):
            as_csr(load(matrix), "k")


def test_other_classes_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"collections\.OrderedDict"):
        load(OrderedDict())
    for value in (1, [1], np.array(["a", "b"])):
        with pytest.raises(DataError):
            as_array(load(value), "k")
    with pytest.raises(DataError):
        as_object(load(np.zeros(3)), "k")


def test_several_pickles_in_a_row() -> None:
    stream = io.BytesIO()
    for value in (1, "two", [3]):
        pickle.dump(value, stream, protocol=2)
    assert Pickles(stream.getvalue(), "k").load_all(3) == [1, "two", [3]]
    with pytest.raises(DataError):
        Pickles(stream.getvalue(), "k").load_all(4)


def test_keys_of_dictionaries_are_never_hashed() -> None:
    """100,000 integers of one hash took Python's own unpickler over a minute."""
    modulus = sys.hash_info.modulus
    keys = [number * modulus for number in range(1, 100_001)]
    assert len({hash(key) for key in keys}) == 1
    pairs = b"".join(b"\x8a\x0c" + key.to_bytes(12, "little", signed=True) + b"N" for key in keys)
    found = Pickles(b"\x80\x02}(" + pairs + b"u.", "k").load()
    assert isinstance(found, PickledDict) and [key for key, _ in found.pairs] == keys


@pytest.mark.parametrize("protocol", range(6))
def test_dictionaries_come_back_as_their_pairs(protocol: int) -> None:
    for value in ({}, {0: [1], 1: [0, 2]}, {"a": 1, 2: "b"}, defaultdict(list, {3: [4]})):
        if protocol == 5 and isinstance(value, defaultdict):
            continue
        found = load(value, protocol)
        assert isinstance(found, PickledDict) and dict(found.pairs) == value
    shared: list[int] = []
    nested = load({"x": shared, "y": shared}, protocol)
    assert isinstance(nested, PickledDict) and nested.named()["x"] is nested.named()["y"]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}K\x01K\x02K\x03(K\x04u.",
        b"\x80\x02]K\x01K\x02s.",
        b"\x80\x02}K\x01a.",
        b"\x80\x02(K\x01d.",
        b"\x80\x02Ns.",
        b"\x80\x02u.",
        b"\x80\x02h\x07.",
        b"\x80\x02K\x01q\x05h\x03.",
        b"\x80\x02Np-1\n.",
        b"\x80\x02.",
        b"\x80\x02c__builtin__\nlist\n)R.",
        b"\x80\x02cnumpy\nndarray\n]R.",
        b"\x80\x02K\x01)R.",
        b"\x80\x02}}b.",
        b"\x80\x02cnumpy\nndarray\nNb.",
        b"\x80\x04K\x01K\x02\x93.",
        b"\x80\x02cnumpy\nload\n.",
        b"\x80\x02c\n\n.",
    ],
)
def test_opcodes_on_what_they_are_not_made_for(content: bytes) -> None:
    with pytest.raises(DataError, match=r"some\.pkl"):
        Pickles(content, "some.pkl").load()
