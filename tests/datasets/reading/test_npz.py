import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gnnexp.datasets.reading.npz import NpzFile, open_npy
from gnnexp.datasets.reading.unpickle import as_csr
from gnnexp.errors import DataError


def test_members_come_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "f": np.asfortranarray(np.eye(3)), "e": np.empty((0, 2), np.float32)}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    file = NpzFile(tmp_path / "x.npz")
    for name, array in arrays.items():
        assert np.array_equal(file.array(name), array)
        assert file.array(name).dtype == array.dtype
    assert "a" in file
    assert "b" not in file


def test_pickled_member_goes_through_the_restricted_unpickler(tmp_path: Path, bomb: tuple[bytes, Path]) -> None:
    matrix = np.empty((), object)
    matrix[()] = scipy.sparse.csr_matrix(np.eye(4))
    np.savez(tmp_path / "x.npz", m=matrix)
    file = NpzFile(tmp_path / "x.npz")
    assert as_csr(file.object("m"), "m").nnz == 4
    with pytest.raises(DataError, match="numbers expected"):
        file.array("m")
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        header = archive.read("m.npy").split(b"\n")[0] + b"\n"
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("m.npy", header + bomb[0])
    with pytest.raises(DataError, match="mkdir"):
        NpzFile(tmp_path / "bomb.npz").object("m")
    assert not bomb[1].exists()


def test_all_missing_members_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    with pytest.raises(DataError) as error:
        NpzFile(tmp_path / "x.npz").require("a", "b", "c")
    assert len(error.value.problems) == 2


def test_shape_that_is_not_that_of_the_bytes(tmp_path: Path) -> None:
    """A header may claim terabytes: it is compared with the size of the member before memory is taken."""
    np.save(tmp_path / "a.npy", np.zeros(10))
    content = (tmp_path / "a.npy").read_bytes()
    lie = content.replace(b"(10,), }          ", b"(9999999999999,), }")[: len(content)]
    assert lie != content
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", lie)
    with pytest.raises(DataError):
        NpzFile(tmp_path / "x.npz").array("a")
    (tmp_path / "b.npy").write_bytes(lie)
    with pytest.raises(DataError):
        open_npy(tmp_path / "b.npy")


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text"])
def test_damaged_archives(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(
        {
            "truncate": bytes(content[: len(content) // 2]),
            "flip": bytes(content),
            "empty": b"",
            "text": b"no archive",
        }[damage]
    )
    with pytest.raises(DataError, match=r"x\.npz"):
        NpzFile(path).array("a")


def test_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5))
    assert open_npy(tmp_path / "a.npy").tolist() == [0, 1, 2, 3, 4]
    np.save(tmp_path / "o.npy", np.array([1, "a"], dtype=object), allow_pickle=True)
    (tmp_path / "short.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-8])
    for name in ("o.npy", "short.npy", "absent.npy"):
        with pytest.raises(DataError, match=name):
            open_npy(tmp_path / name)
    np.savez(tmp_path / "z.npz", a=np.zeros(1))
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    with pytest.raises(DataError, match="archive"):
        open_npy(tmp_path / "z.npy")
