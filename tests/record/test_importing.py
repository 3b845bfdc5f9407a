"""Runs out of a file that somebody gave away: nothing of it is taken as it is, and nothing that is here is touched."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError, DataError
from gnnexp.record.importing import unpack_records
from gnnexp.record.records import load_job, load_result, read_epochs
from gnnexp.record.runs import find_runs, read_run

RUN = "runs/gift/one"


def record(folder: Path, **changes: object) -> dict[str, Any]:
    """A good `result.json`; `changes` go into its configuration."""
    write_job(folder / "made")
    write_epochs(folder / "made", 3)
    write_result(folder / "made")
    result: dict[str, Any] = json.loads((folder / "made" / "result.json").read_text())
    result["config"] |= changes
    return result


def state(*run_dirs: str) -> dict[str, Any]:
    return {"name": "gift", "cases": [{"label": name, "run_dir": name, "status": "finished"} for name in run_dirs]}


def archive(file: Path, members: Mapping[str, object], *, format: int = tarfile.PAX_FORMAT) -> Path:
    """A `.tar.xz` of members by name: bytes, or a value as JSON."""
    with tarfile.open(file, "w:xz", format=format) as written:
        for name, value in members.items():
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            written.addfile(entry, io.BytesIO(content))
    return file


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    return record(tmp_path)


# --- what comes out --------------------------------------------------------------------------------------------------
def test_an_imported_run_says_so_and_has_no_tracker(tmp_path: Path, good: dict[str, Any]) -> None:
    evil = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": "http://somebody.example/"}
    good["config"]["tracker"] = evil
    good["provenance"]["imported"] = {"file": "another", "sha256": "0", "uid": "uid-of-yours"}
    file = archive(
        tmp_path / "gift.tar.xz",
        {f"{RUN}/result.json": good, f"{RUN}/job.json": good, f"{RUN}/config.yaml": b"tracker: {_target_: os.system}"},
    )
    assert unpack_records(file, tmp_path) == (1, 0)
    place = tmp_path / RUN
    for found in (load_job(place), load_result(place)):
        assert "tracker" not in found["config"]
        mark = found["provenance"]["imported"]
        assert (mark["file"], mark["sha256"]) == ("gift.tar.xz", hashlib.sha256(file.read_bytes()).hexdigest())
        assert found["provenance"]["uid"] not in ("uid-1", "uid-of-yours")
    assert not any(b"somebody" in path.read_bytes() or b"os.system" in path.read_bytes() for path in place.iterdir())


def test_other_files_of_a_run_are_made_from_its_result(tmp_path: Path, good: dict[str, Any]) -> None:
    other = {**good, "config": {**good["config"], "seed": 5}, "graph": "/etc", "partition": "/etc"}
    unpack_records(
        archive(
            tmp_path / "x.tar.xz",
            {f"{RUN}/job.json": other, f"{RUN}/epochs.jsonl": b"no JSON\n", f"{RUN}/result.json": good},
        ),
        tmp_path,
    )
    job = load_job(tmp_path / RUN)
    assert (job["config"]["seed"], job["graph"], job["partition"]) == (0, None, None)
    assert read_epochs(tmp_path / RUN) == good["epochs"]
    assert sorted(path.name for path in (tmp_path / RUN).iterdir()) == [
        "config.yaml",
        "epochs.jsonl",
        "job.json",
        "result.json",
    ]


@pytest.mark.parametrize(
    ("best", "taken"),
    [
        ({"epoch": 1, "checkpoint": "checkpoints/best"}, {"epoch": 1, "checkpoint": None}),
        ({}, {}),
        ("text", "text"),
    ],
)
def test_no_checkpoint_is_named_that_is_not_there(
    tmp_path: Path, good: dict[str, Any], best: object, taken: object
) -> None:
    """Earlier versions exported its name."""
    file = archive(tmp_path / "a.tar.xz", {f"{RUN}/result.json": {**good, "best": best}})
    unpack_records(file, tmp_path / "there")
    assert load_result(tmp_path / "there" / RUN)["best"] == taken


def test_what_makes_a_terminal_do_something_is_replaced(tmp_path: Path, good: dict[str, Any]) -> None:
    good["reason"] = "\x1b]0;owned\x07 line\nline \x9b31m"
    unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path)
    assert read_run(tmp_path / RUN).reason == "\ufffd]0;owned\ufffd line\nline \ufffd31m"


def test_a_sweeps_state_leads_to_runs_of_its_archive_only(tmp_path: Path, good: dict[str, Any]) -> None:
    members = {f"{RUN}/result.json": good, "runs/sweeps/gift.json": state(RUN, "/etc", "runs/mine", f"{RUN}/../../x")}
    unpack_records(archive(tmp_path / "x.tar.xz", members), tmp_path)
    cases = json.loads((tmp_path / "runs/sweeps/gift.json").read_text())["cases"]
    assert [case["run_dir"] for case in cases] == [RUN, "", "", ""]


# --- what is here stays ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("there", ["begun", "empty", "file", "dangling"])
def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path, good: dict[str, Any], there: str) -> None:
    place = tmp_path / RUN
    place.parent.mkdir(parents=True)
    if there in ("begun", "empty"):
        place.mkdir()
    if there == "begun":
        (place / "job.json").write_text("my begun run")
    elif there == "file":
        place.write_text("mine")
    elif there == "dangling":
        place.symlink_to("nowhere")
    before = tree(tmp_path / "runs")
    assert unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path) == (0, 1)
    assert tree(tmp_path / "runs") == before
    assert there != "begun" or (place / "job.json").read_text() == "my begun run"


def test_a_sweeps_state_that_is_there_stays_as_it_is(tmp_path: Path, good: dict[str, Any]) -> None:
    (tmp_path / "runs/sweeps").mkdir(parents=True)
    (tmp_path / "runs/sweeps/gift.json").write_text("mine")
    unpack_records(
        archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good, "runs/sweeps/gift.json": state(RUN)}), tmp_path
    )
    assert (tmp_path / "runs/sweeps/gift.json").read_text() == "mine"


@pytest.mark.parametrize("inner", [f"{RUN}/checkpoints", f"{RUN}/a/b"])
def test_nothing_is_put_into_a_run(tmp_path: Path, good: dict[str, Any], inner: str) -> None:
    file = archive(tmp_path / "x.tar.xz", {f"{inner}/result.json": good})
    (tmp_path / RUN).mkdir(parents=True)
    (tmp_path / RUN / "job.json").write_text("mine")
    with pytest.raises(DataError, match=f"inside of {RUN}"):
        unpack_records(file, tmp_path)
    assert tree(tmp_path / "runs") == ["gift", "gift/one", "gift/one/job.json"]
    both = archive(tmp_path / "y.tar.xz", {f"{RUN}/result.json": good, f"{inner}/result.json": good})
    with pytest.raises(DataError, match=f"inside of {RUN}"):
        unpack_records(both, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_run_without_a_result_is_refused_by_its_name(tmp_path: Path, good: dict[str, Any]) -> None:
    file = archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good, "runs/gift/two/job.json": good})
    with pytest.raises(DataError, match="runs/gift/two"):
        unpack_records(file, tmp_path / "there")
    assert not (tmp_path / "there").exists()


_KILLED = """
import os, signal, sys
from pathlib import Path
from gnnexp.record import importing
name, after = sys.argv[2], int(sys.argv[3])
real, calls = getattr(Path, name), 0
def dying(self, *arguments, **more):
    global calls
    calls += 1
    if calls > after:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *arguments, **more)
setattr(Path, name, dying)
importing.unpack_records(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(("call", "after", "whole"), [("replace", 2, 0), ("rename", 0, 0), ("rename", 1, 1)])
@pytest.mark.interpreter
def test_an_import_that_is_killed_leaves_nothing_half(
    tmp_path: Path, good: dict[str, Any], call: str, after: int, whole: int
) -> None:
    """Killed while a run is written, before the first run gets its name, and between two."""
    members: dict[str, object] = {f"runs/gift/{number}/result.json": good for number in range(3)}
    members["runs/sweeps/gift.json"] = state(*(f"runs/gift/{number}" for number in range(3)))
    file = archive(tmp_path / "x.tar.xz", members)
    there = tmp_path / "there"
    there.mkdir()
    done = subprocess.run([sys.executable, "-c", _KILLED, file, call, str(after)], cwd=there, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(find_runs(there / "runs")) == whole
    assert all(load_job(run.path) for run in find_runs(there / "runs"))
    assert not (there / "runs/sweeps/gift.json").exists()
    assert unpack_records(file, there) == (3 - whole, whole)
    assert len(find_runs(there / "runs")) == 3 and not [name for name in tree(there) if "import-" in name]
    assert (there / "runs/sweeps/gift.json").exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path, good: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "there")

    monkeypatch.setattr("gnnexp.record.importing.write_text", full)
    with pytest.raises(DataError, match="No space left on device"):
        unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_one_import_at_a_time(tmp_path: Path, good: dict[str, Any]) -> None:
    (tmp_path / "runs").mkdir()
    lock = os.open(tmp_path / "runs", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="another import"):
        unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path)
    os.close(lock)
    assert unpack_records(tmp_path / "x.tar.xz", tmp_path) == (1, 0)


# --- what is no archive of ours --------------------------------------------------------------------------------------
NAMES = [
    "",
    ".",
    "..",
    "/etc/result.json",
    "runs/../../result.json",
    "runs/./a/result.json",
    "runs//a/result.json",
    "runs/a/logs.txt",
    "result.json",
    "runs/result.json",
    "runs/sweeps/result.json",
    "runs/sweeps/job.json",
    "runs/sweeps/deeper/x.json",
    "runs/sweeps/x/result.json",
    "runs/a/evil.py",
    "runs/.hidden/result.json",
    "runs/sweeps/...json",
    "runs/sweeps/.json",
    "runs/a\x1b[31m/result.json",
    "runs/a\nb/result.json",
    f"runs/{'a' * 300}/result.json",
    f"runs/{'a/' * 5000}result.json",
    "runs/a/result.json/",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:40]))
def test_a_foreign_member_is_refused_and_nothing_is_written(tmp_path: Path, good: dict[str, Any], name: str) -> None:
    file = archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good, name: good})
    with pytest.raises(DataError, match="no file of a record"):
        unpack_records(file, tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("value", ["runs/a\0b/result.json", "runs/\udcff/result.json"])
def test_names_that_no_system_takes(tmp_path: Path, value: str) -> None:
    file = tmp_path / "x.tar.xz"
    with tarfile.open(file, "w:xz") as written:
        entry = tarfile.TarInfo("x")
        entry.pax_headers = {"path": value}
        written.addfile(entry)
    with pytest.raises(DataError):
        unpack_records(file, tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.DIRTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.GNUTYPE_SPARSE,
        tarfile.CONTTYPE,
    ],
)
def test_only_regular_files(tmp_path: Path, kind: bytes) -> None:
    file = tmp_path / "x.tar.xz"
    with tarfile.open(file, "w:xz") as written:
        entry = tarfile.TarInfo(f"{RUN}/result.json")
        entry.type, entry.linkname = kind, "/etc/passwd"
        written.addfile(entry)
    with pytest.raises(DataError, match="no file of a record"):
        unpack_records(file, tmp_path / "there")


@pytest.mark.parametrize(
    "header", [{"size": "99999999999999"}, {"size": "-1"}, {"GNU.sparse.major": "1"}, {"uid": "0"}]
)
def test_headers_that_change_what_a_file_is(tmp_path: Path, header: dict[str, str]) -> None:
    file = tmp_path / "x.tar.xz"
    with tarfile.open(file, "w:xz") as written:
        entry = tarfile.TarInfo(f"{RUN}/result.json")
        entry.pax_headers = header
        written.addfile(entry)
    with pytest.raises(DataError, match="no part of a record"):
        unpack_records(file, tmp_path / "there")


def test_a_file_that_is_there_twice(tmp_path: Path, good: dict[str, Any]) -> None:
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as written:
        for _ in range(2):
            content = json.dumps(good).encode()
            entry = tarfile.TarInfo(f"{RUN}/result.json")
            entry.size = len(content)
            written.addfile(entry, io.BytesIO(content))
    with pytest.raises(DataError, match="twice"):
        unpack_records(tmp_path / "x.tar.xz", tmp_path / "there")


@pytest.mark.parametrize(
    "damage",
    [
        lambda result: result.pop("config"),
        lambda result: result["summary"].update({"acc/test": None}),
        lambda result: result["epochs"][1].update(metrics={"loss/train": "x"}),
        lambda result: result.update(status="done"),
        lambda result: result["config"]["hardware"].update(workers=2**70),
        lambda result: result.update(epochs=None),
        lambda result: result["provenance"].update(choices=[1]),
        lambda result: result.update(notes=_deep(40)),
    ],
)
def test_a_record_of_another_shape_is_refused(tmp_path: Path, good: dict[str, Any], damage: Any) -> None:
    damage(good)
    with pytest.raises(DataError, match=f"{RUN}/result.json"):
        unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def _deep(levels: int) -> list[Any]:
    return [_deep(levels - 1)] if levels else []


@pytest.mark.parametrize("content", [b"\xff\x00", b"[" * 100_000, b'"\\ud800"', b"", b"1" * 5000])
def test_a_record_that_is_no_json(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=f"{RUN}/result.json"):
        unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": content}), tmp_path / "there")


def test_damaged_and_empty(tmp_path: Path, good: dict[str, Any]) -> None:
    file = archive(tmp_path / "some.tar.xz", {f"{RUN}/result.json": good})
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"no archive", whole[:-8], whole + b"more", whole + whole):
        file.write_bytes(content)
        with pytest.raises(DataError, match="must be a whole file"):
            unpack_records(file, tmp_path / "there")
        assert not (tmp_path / "there").exists()


# --- memory ----------------------------------------------------------------------------------------------------------
_BOMB = """
import lzma, sys, tarfile
from pathlib import Path
size = int(sys.argv[1])
for kind in sys.argv[2:]:
    entry = tarfile.TarInfo("runs/a/result.json")
    entry.type, entry.size = kind.encode(), size
    packer = lzma.LZMACompressor(preset=1)
    with open(kind, "wb") as out:
        out.write(packer.compress(entry.tobuf(tarfile.GNU_FORMAT)))
        for _ in range(size >> 24):
            out.write(packer.compress(bytes(1 << 24)))
        out.write(packer.flush())
"""
_IMPORT = """
import resource, sys
from pathlib import Path
from gnnexp.errors import DataError
from gnnexp.record.importing import unpack_records
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for file in sys.argv[1:]:
    try:
        unpack_records(Path(file), Path("there"))
    except DataError:
        print(file, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.interpreter
def test_an_archive_takes_little_memory_whatever_it_claims(tmp_path: Path) -> None:
    """240 kB that unpacked to 1.6 GB, in headers of every kind and in a file: here a tenth of both.

    One process reads all of them: its peak is that of the worst, and the first line above the bound names it.
    """
    kinds = ["L", "K", "x", "g", "0"]
    subprocess.run([sys.executable, "-S", "-c", _BOMB, str(160 << 20), *kinds], cwd=tmp_path, check=True)
    assert all((tmp_path / kind).stat().st_size < 1 << 20 for kind in kinds)
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, *kinds], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert [*grown] == kinds and not [kind for kind in kinds if int(grown[kind]) >= 100 << 10], grown
    assert not (tmp_path / "there").exists()


def test_a_decoder_gets_no_more_memory_than_ours_needs(tmp_path: Path) -> None:
    """The header of an `.xz` file says how large the dictionary is: here 1 GiB."""
    content = bytearray(lzma.compress(bytes(1 << 12)))
    header = content[12 : 12 + 4 * (content[12] + 1)]
    place = header.index(b"\x21\x01") + 2  # of LZMA2's one property
    header[place] = 36
    header[-4:] = zlib.crc32(header[:-4]).to_bytes(4, "little")
    content[12 : 12 + len(header)] = header
    assert lzma.decompress(bytes(content)) == bytes(1 << 12)
    (tmp_path / "x.tar.xz").write_bytes(content)
    with pytest.raises(DataError, match="Memory usage limit"):
        unpack_records(tmp_path / "x.tar.xz", tmp_path / "there")


def test_a_tar_is_read_with_a_note_that_names_the_release_of_its_removal(
    tmp_path: Path, good: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unpack_records(archive(tmp_path / "x.tar.xz", {f"{RUN}/result.json": good}), tmp_path / "there") == (1, 0)
    said = capsys.readouterr()
    assert "removed in 0.3" in said.err and "gnnexp export" in said.err and not said.out


# --- commands --------------------------------------------------------------------------------------------------------
def test_an_imported_run_is_not_resumed(
    tmp_path: Path, good: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good["provenance"]["dataset_key"] = "x"
    for status in ("finished", "failed"):
        file = archive(tmp_path / f"{status}.tar.xz", {f"runs/gift/{status}/result.json": {**good, "status": status}})
        assert run_command(["import", str(file)]) == 0
        assert run_command(["resume", f"runs/gift/{status}"]) == 2
        said = capsys.readouterr().err
        assert f"imported from {status}.tar.xz" in said and "fix: gnnexp run" in said
