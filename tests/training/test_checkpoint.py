"""Checkpoints on disk: whole or not there, compared with their checksums, and never executed."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.errors import DataError
from gnnexp.measure.phases import PhaseTimer
from gnnexp.training import checkpoint
from gnnexp.training.checkpoint import (
    Position,
    checkpoint_folders,
    latest_checkpoint,
    link_copied_best,
    open_checkpoint,
    save_checkpoint,
)


def alone() -> Communicator:
    return Communicator(Environment(), PhaseTimer(), torch.device("cpu"))


def save(run_dir: Path, epoch: int = 0, step: int = 0, keep: int = 2, *, best: bool = False) -> str:
    shared = {"parameters": {"w": {"value": torch.arange(50.0), "step": torch.tensor(3.0)}}}
    return save_checkpoint(
        run_dir, alone(), Position(epoch, step), shared, {"paradigm": {}, "record": None}, keep, best=best
    )


def test_what_was_saved_is_read(tmp_path):
    assert save(tmp_path, 3, 17) == ""
    found, problems = latest_checkpoint(tmp_path)
    assert found is not None and problems == []
    assert (found.position, found.num_ranks) == (Position(3, 17), 1)
    assert torch.equal(found.shared()["parameters"]["w"]["value"], torch.arange(50.0))
    assert found.of_rank(0) == {"paradigm": {}, "record": None}


def test_the_latest_stay_in_order_of_their_positions(tmp_path):
    for epoch, step in [(0, 9), (0, 10), (1, 0), (10, 0), (2, 0)]:
        assert save(tmp_path, epoch, step) == ""
    names = [folder.name for folder in checkpoint_folders(tmp_path)]
    assert names == sorted(names, reverse=True) and len(names) <= 3
    assert latest_checkpoint(tmp_path)[0].position == Position(10)


def test_a_file_system_without_links_takes_no_checkpoint_away(tmp_path, monkeypatch, caplog):
    def refuse(link: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(link))

    monkeypatch.setattr(checkpoint.Path, "symlink_to", refuse)
    assert [save(tmp_path, epoch, best=True) for epoch in (1, 2, 3)] == ["", "", ""]
    assert [item.name for item in checkpoint_folders(tmp_path)] == [Position(3).folder, Position(2).folder]
    assert "no link to the checkpoint of the best epoch" in caplog.text


def test_a_folder_in_the_place_of_the_link_that_is_no_checkpoint_is_removed(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "checkpoints" / "best").mkdir()
    link_copied_best(tmp_path)
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == [Position(1).folder]


def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    assert "No space left" in save(tmp_path, 2)
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == [Position(1).folder]


def damage(folder: Path, generator: random.Random) -> str:
    """One of many ways in which a checkpoint can be wrong; returns which."""
    file = folder / generator.choice(["shared.pt", "rank_0.pt", "checkpoint.json"])
    content = bytearray(file.read_bytes())
    kind = generator.choice(["truncated", "flipped", "emptied", "removed", "longer", "linked", "garbled"])
    if kind == "removed":
        file.unlink()
        return kind
    if kind == "linked":
        other = folder.parent.parent / "elsewhere"
        other.write_bytes(content)
        file.unlink()
        file.symlink_to(other)
        return "removed" if file.name == "checkpoint.json" else kind
    if kind == "truncated":
        content = content[: generator.randrange(len(content))]
    elif kind == "flipped":
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    elif kind == "emptied":
        content = bytearray()
    elif kind == "longer":
        content += b"more"
    else:
        content = bytearray(generator.randbytes(len(content)))
    file.write_bytes(content)
    return kind


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_found_and_the_earlier_checkpoint_taken(tmp_path, seed):
    save(tmp_path, 1)
    save(tmp_path, 2)
    generator = random.Random(seed)
    latest = tmp_path / "checkpoints" / Position(2).folder
    before = {file.name: file.read_bytes() for file in latest.iterdir()}
    kind = damage(latest, generator)
    found, problems = latest_checkpoint(tmp_path)
    assert found is not None
    if found.position == Position(2):  # a bit of the JSON that says the same (white space), or the link to its text
        assert kind in ("flipped", "removed", "longer") and problems == []
        same = {file.name: file.read_bytes() for file in latest.iterdir()}
        assert {**same, "checkpoint.json": b""} == {**before, "checkpoint.json": b""}
    else:
        assert found.position == Position(1)
        assert len(problems) == 1 and "remove this checkpoint" in problems[0].fix


def test_one_that_the_disk_does_not_read_is_damaged(tmp_path, monkeypatch):
    save(tmp_path, 1)
    save(tmp_path, 2)
    checksum = checkpoint._checksum

    def read(path: Path) -> str:
        if path.parent.name == Position(2).folder:
            raise OSError(5, "Input/output error", str(path))
        return checksum(path)

    monkeypatch.setattr(checkpoint, "_checksum", read)
    found, problems = latest_checkpoint(tmp_path)
    assert found is not None and found.position == Position(1)
    assert len(problems) == 1 and "Input/output error" in problems[0].allowed


class Executes:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


def forge(folder: Path, name: str, content: bytes) -> None:
    """A file that its checksum is right for: what somebody publishes, not what a disk does."""
    (folder / name).write_bytes(content)
    meta = json.loads((folder / "checkpoint.json").read_text())
    meta["files"][name] = {"bytes": len(content), "sha256": checkpoint._checksum(folder / name)}
    (folder / "checkpoint.json").write_text(json.dumps(meta))


def torch_archive(data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/byteorder", b"little")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Executes()),
        torch_archive(pickle.dumps(Executes())),
        torch_archive(b"\0" * (1 << 26), zipfile.ZIP_DEFLATED),
        torch_archive(pickle.dumps([1, 2])),
        torch_archive(b"not a pickle"),
        b"",
        b"PK\x05\x06" + b"\0" * 18,
        torch_archive(b"\x80\x02}]K\x01s."),
        torch_archive(b"\x80\x02R."),
        torch_archive(b"\x80\x02NQ."),
    ],
    ids=[
        "pickle",
        "archived pickle",
        "bomb",
        "list",
        "garbage",
        "empty",
        "empty archive",
        "a list as a key",
        "an empty stack",
        "a foreign id",
    ],
)
def test_what_is_no_state_is_refused_and_never_run(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    save(tmp_path, 1)
    folder = tmp_path / "checkpoints" / Position(1).folder
    forge(folder, "shared.pt", content)
    found = open_checkpoint(folder)
    found.verify()
    with pytest.raises(DataError, match=r"shared\.pt"):
        found.shared()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"position": {"epoch": -1, "step": 0}},
        {"position": {"epoch": 1}},
        {"num_ranks": 10**9},
        {"num_ranks": "2"},
        {"num_ranks": 0},
        {"files": {}},
        {"files": {"../../escaped": {"bytes": 0, "sha256": ""}}},
        {"position": {"epoch": 2, "step": 0}},
        {"files": []},
    ],
)
def test_wrong_metadata_is_refused(tmp_path, change):
    save(tmp_path, 1)
    folder = tmp_path / "checkpoints" / Position(1).folder
    meta = json.loads((folder / "checkpoint.json").read_text())
    (folder / "checkpoint.json").write_text(json.dumps({**meta, **change}))
    with pytest.raises(DataError):
        open_checkpoint(folder)
