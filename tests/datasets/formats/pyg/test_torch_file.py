"""Files of torch are read without its loader: nothing in them runs, and damage is a problem with file and fix."""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.datasets.formats.pyg.torch_file import TorchFile
from gnnexp.errors import DataError

pyg = pytest.importorskip("torch_geometric.data")


def plain() -> dict[str, Any]:
    return {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), "x": torch.rand(3, 2), "y": torch.tensor([0, 1, 0])}


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def changed(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A file of torch with another pickle."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            data = source.read(name)
            archive.writestr(name, change(data) if name.endswith("data.pkl") else data)
    return target.getvalue()


def refused(path: Path, content: bytes, text: str = "") -> str:
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        Pyg(path=str(path)).load()
    message = str(error.value)
    assert str(path) in message and "fix:" in message and text in message
    return message


class Runs:
    """Its pickle makes a folder when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self.trace),)


def test_what_runs_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    for value in (Runs(trace), {**plain(), "name": Runs(trace)}, pyg.Data(**plain(), extra=[Runs(trace)])):
        message = refused(tmp_path / "g.pt", saved(value), "posix.mkdir")
        assert "torch.save(data.to_dict(), FILE)" in message
    assert not trace.exists()


def test_a_class_of_pyg_that_reads_other_files_is_refused(tmp_path: Path) -> None:
    """torch_geometric allows `ClusterData` in its process, whose constructor reads a file without any restriction."""
    trace = tmp_path / "executed"
    (tmp_path / "part_2").mkdir()
    torch.save(Runs(trace), tmp_path / "part_2" / "metis.pt")
    from torch_geometric.loader import ClusterData

    class Hidden:
        def __reduce__(self) -> Any:
            return ClusterData, (pyg.Data(**plain()), 2, False, str(tmp_path))

    refused(tmp_path / "g.pt", saved({**plain(), "more": Hidden()}), "ClusterData")
    assert not trace.exists()


def test_a_class_of_the_user_is_refused_with_the_fix(tmp_path: Path) -> None:
    class Own(pyg.Data):
        pass

    Own.__qualname__ = "Own"
    globals()["Own"] = Own
    assert "to_dict()" in refused(tmp_path / "g.pt", saved(Own(**plain())), "Own")
    assert Pyg(path=str(tmp_path / "g.pt")).recognised(tmp_path / "g.pt") == []


def test_other_files_are_refused(tmp_path: Path) -> None:
    old = io.BytesIO()
    torch.save(plain(), old, _use_new_zipfile_serialization=False)
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(plain()))) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    for content, text in (
        (old.getvalue(), "not a zip file"),
        (packed.getvalue(), "is packed"),
        (b"", "not a zip file"),
        (saved(torch.ones(3)), "graph of PyG"),
        (saved({"a": 1}), "graph of PyG"),
        (saved(plain())[:300], "not a zip file"),
        (saved([]), "0 graphs"),
        (saved(None), "graph of PyG"),
    ):
        refused(tmp_path / "g.pt", content, text)
    with pytest.raises(DataError, match=r"dataset.path"):
        Pyg(path=str(tmp_path / "none.pt")).load()
    os.mkfifo(tmp_path / "fifo.pt")
    with pytest.raises(DataError, match="FIFO"):
        Pyg(path=str(tmp_path / "fifo.pt")).read()


def test_sizes_are_compared_before_memory_is_taken(tmp_path: Path) -> None:
    huge = (1 << 40).to_bytes(6, "little")

    def claims(old: bytes, new: bytes) -> bytes:
        content = saved({"edge_index": torch.tensor([[0, 1, 77], [1, 2, 0]])})
        return changed(content, lambda data: data.replace(old, new, 1))

    size = b"K\x02K\x03\x86"  # the tuple (2, 3)
    assert size in zipfile.ZipFile(io.BytesIO(saved(plain()))).read("archive/data.pkl")
    refused(tmp_path / "g.pt", claims(size, b"K\x02\x8a\x06" + huge + b"\x86"), "a tensor")
    refused(tmp_path / "g.pt", claims(size, b"K\x02K\x04\x86"), "a tensor")
    stride = b"K\x03K\x01\x86"  # the tuple (3, 1)
    refused(tmp_path / "g.pt", claims(stride, b"J\xff\xff\xff\xffK\x01\x86"), "malformed size")

    def expanded(data: bytes) -> bytes:
        return data.replace(size, b"K\x02\x8a\x06" + huge + b"\x86", 1).replace(stride, b"K\x00K\x00\x86", 1)

    refused(tmp_path / "g.pt", changed(saved({"edge_index": torch.tensor([[0, 1, 77], [1, 2, 0]])}), expanded), "GiB")


def called(name: bytes) -> bytes:
    """A pickle that calls a class with 3."""
    return b"\x80\x02c" + name + b"\nK\x03\x85R."


HOSTILE = {
    "a list as a key": b"\x80\x02}]K\x01s.",
    "bytes": called(b"builtins\nbytearray"),
    "numbers": called(b"torch\nFloatTensor"),
    "opcode": b"\x80\x02}\x8f.",
    "memo": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "empty": b"",
    "cut": b"\x80\x02}",
    "persistent text": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "storage of nothing": b"\x80\x02(X\x07\x00\x00\x00storageK\x01K\x01K\x01K\x01tQ.",
    "calls a number": b"\x80\x02K\x01)R.",
    "calls a type": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "itself": b"\x80\x02}q\x00X\x0a\x00\x00\x00edge_indexh\x00s.",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(tmp_path: Path, name: str) -> None:
    refused(tmp_path / "g.pt", changed(saved(plain()), lambda _: HOSTILE[name]))


@pytest.mark.timeout(120)
def test_damaged_files_are_problems_or_graphs(tmp_path: Path) -> None:
    """Bytes of a file are changed at random: each file is a graph or a problem, and never something else."""
    draw, content = random.Random(0), saved(pyg.Data(**plain()))
    ends = 0
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 6)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (tmp_path / "g.pt").write_bytes(damaged if draw.random() < 0.9 else damaged[: draw.randrange(len(damaged))])
        try:
            Pyg(path=str(tmp_path / "g.pt")).load()
        except DataError:
            ends += 1
    assert 0 < ends < 300


def test_tensors_are_maps_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.pt"
    path.write_bytes(
        saved(
            {
                "a": torch.arange(10.0)[2:8:2],
                "b": torch.tensor([True, False]),
                "c": torch.empty(0, 3),
                "d": torch.tensor(3),
                "e": torch.arange(6).reshape(2, 3).t(),
            }
        )
    )
    before = path.read_bytes()
    file = TorchFile(path)
    content: Any = file.content()
    found = {name: file.value(value) for name, value in content.named().items()}
    assert found["a"].tolist() == [2, 4, 6] and found["b"].tolist() == [True, False] and found["c"].shape == (0, 3)
    assert found["d"].item() == 3 and found["e"].tolist() == [[0, 3], [1, 4], [2, 5]]
    found["a"].zero_()
    assert path.read_bytes() == before, "what is written to a tensor does not reach the file"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_torch(tmp_path: Path, protocol: int) -> None:
    torch.save(pyg.Data(**plain()), tmp_path / "g.pt", pickle_protocol=protocol)
    assert Pyg(path=str(tmp_path / "g.pt")).load().num_nodes == 3


def test_a_sparse_tensor_must_be_one(tmp_path: Path) -> None:
    matrix = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 1.0], (3, 3))
    content = saved({"adj_t": matrix})
    size = b"K\x03K\x03\x86"
    refused(tmp_path / "g.pt", changed(content, lambda data: data.replace(size, b"K\x01K\x01\x86", 1)), "sparse tensor")
    path = tmp_path / "g.pt"
    path.write_bytes(content)
    assert Pyg(path=str(path)).load().num_nodes == 3


@pytest.mark.interpreter
@pytest.mark.slow
def test_the_pickle_of_torch_needs_no_torch_geometric(tmp_path: Path) -> None:
    """A process in which torch_geometric cannot be imported reads PyG's own objects."""
    import subprocess
    import sys

    path = tmp_path / "g.pt"
    path.write_bytes(saved(pyg.Data(**plain())))
    code = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "from gnnexp.datasets.formats.pyg.dataset import Pyg\n"
        f"print(Pyg(path={str(path)!r}).load().num_edges)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "6", done.stderr
