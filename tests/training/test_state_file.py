"""Files of checkpoints: what torch saves is let through, and what takes more memory than the file has bytes is not."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import pytest
import torch

from gnnexp.training.state_file import check_state_file

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
]


def state() -> dict[str, object]:
    """All kinds of values that torch's loader accepts."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter": next(model.parameters()),
        "types": [torch.zeros(2).to(one) for one in TYPES],
        "dtypes": TYPES,
        "device": torch.device("cpu"),
        "size": torch.Size([1, 2]),
        "sparse": torch.eye(3).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "ordered": OrderedDict(a=1),
        "counts": Counter("aab"),
        "set": {1, 2},
        "complex": 1j,
        "bytes": b"\x00\xff",
        "plain": (None, True, 1, 1 << 80, 0.5, "a", [{}, ()]),
        "random": torch.get_rng_state(),
    }


def rewritten(path: Path, pickled: bytes, *, compression: int = zipfile.ZIP_STORED, more: str = "") -> None:
    """A file of torch with another pickle, perhaps with a second one under the name `more`."""
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(4.0)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w", compression) as new:
        for one in old.infolist():
            new.writestr(one.filename, pickled if one.filename.endswith("data.pkl") else old.read(one))
        if more:
            new.writestr(more, pickled)


def test_what_torch_saves_and_loads_passes(tmp_path):
    torch.save(state(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True).keys() == state().keys()
    check_state_file(tmp_path / "state.pt")


NUMBER = b"\x80\x02c%b\nK\x05\x85R."
TEXT = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R."


@pytest.mark.parametrize(
    "pickled",
    [
        NUMBER % b"builtins\nbytearray",
        NUMBER % b"__builtin__\nbytearray",
        NUMBER % b"torch\nTensor",
        NUMBER % b"torch\nFloatTensor",
        NUMBER % b"torch.storage\nUntypedStorage",
        NUMBER % b"torch\nFloatStorage",
        TEXT,
        NUMBER % b"torch._utils\n_rebuild_meta_tensor_no_storage",
        pickle.dumps({1, 2}, 4),
        b"",
        b"\x80\x02",
    ],
)
def test_what_makes_much_of_little_is_refused(tmp_path, pickled):
    rewritten(tmp_path / "state.pt", pickled)
    with pytest.raises((pickle.UnpicklingError, TypeError, EOFError)):
        check_state_file(tmp_path / "state.pt")


def test_archives_that_readers_see_differently_are_refused(tmp_path):
    good, path = pickle.dumps({"a": 1}, 2), tmp_path / "state.pt"
    rewritten(path, good)
    check_state_file(path)
    content = path.read_bytes()
    for change in ({"compression": zipfile.ZIP_DEFLATED}, {"more": "archive/DATA.PKL"}):
        rewritten(path, good, **change)
        with pytest.raises(ValueError, match=r"archive of torch|compressed"):
            check_state_file(path)
    path.write_bytes(b"before" + content)
    with pytest.raises(ValueError, match="archive of torch"):
        check_state_file(path)
