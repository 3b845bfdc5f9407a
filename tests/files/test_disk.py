"""What a disk refuses, in words; and that nothing of a file that could not be written is left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from gnnexp.cli.main import run_command
from gnnexp.files.disk import (
    DiskError,
    appearing,
    in_words,
    one_line,
    refusal,
    replaced,
    shortened,
    subfolder,
    try_lock,
    write_bytes,
    writing,
)
from gnnexp.graph.storage.writer import ArrayWriter


@pytest.mark.parametrize(
    ("number", "what", "fix"),
    [
        (errno.ENOSPC, "the disk is full", "make room there (df -h /a/run), then: gnnexp resume /a/run"),
        (errno.EDQUOT, "your quota on this disk is exceeded", "quota -s"),
        (errno.EFBIG, "the file would be larger than files may be", "ulimit -f"),
        (errno.EROFS, "the disk is mounted read-only", "have it mounted for writing"),
        (errno.EACCES, "you have no right to use this place", "change its rights"),
        (errno.ENOSYS, "this file system has no file locks", "Lustre: -o flock"),
    ],
)
def test_every_refusal_has_words_and_a_fix(number: int, what: str, fix: str) -> None:
    problem = refusal(OSError(number, os.strerror(number), "/a/run/result.json"), "gnnexp resume /a/run")
    assert problem is not None and (problem.key, problem.allowed) == ("/a/run/result.json", what)
    assert fix in problem.fix and problem.fix.endswith("then: gnnexp resume /a/run")
    assert one_line(problem) == f"{what}: /a/run/result.json ({os.strerror(number)})"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file", "/a"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        PermissionError(errno.EACCES, "a socket"),
        OSError("no number"),
    ],
)
def test_errors_of_another_kind_pass(error: OSError) -> None:
    assert refusal(error) is None
    with pytest.raises(type(error)) as caught, in_words():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_nothing_is_left_of_a_file_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    file = tmp_path / "result.json"
    write_bytes(file, b"before")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    if call == "replace":
        monkeypatch.setattr(Path, "replace", full)
    else:  # a write may fail when it is flushed
        monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"result\.json") as caught, in_words():
        write_bytes(file, b"after")
    assert caught.value.problems[0].key == str(file)
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"] and file.read_bytes() == b"before"


def test_a_file_that_is_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, writing(tmp_path / "epochs.jsonl"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "epochs.jsonl")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EEXIST, "must be a folder, and is a file"),
        (errno.ENOTDIR, "must be a folder, and is a file"),
        (errno.ELOOP, "leads back to itself"),
        (errno.ENAMETOOLONG, "too long"),
    ],
)
def test_a_path_that_cannot_be_a_folder_is_explained(tmp_path: Path, number: int, words: str) -> None:
    (tmp_path / "sweeps").touch()
    problem = refusal(OSError(number, os.strerror(number), str(tmp_path / "sweeps")))
    assert problem is not None and words in problem.allowed and problem.key == str(tmp_path / "sweeps")


def test_a_folder_that_is_there_already_is_no_problem_of_the_disk(tmp_path: Path) -> None:
    assert refusal(OSError(errno.EEXIST, "File exists", str(tmp_path))) is None


def test_a_folder_that_is_gone_is_not_made_again_by_a_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_bytes(tmp_path / "run" / "result.json", b"{}")
    assert caught.value.filename == str(tmp_path / "run" / "result.json")
    with pytest.raises(FileNotFoundError):
        subfolder(tmp_path / "run", "logs")
    assert not (tmp_path / "run").exists()
    assert subfolder(tmp_path, "logs", "old") == tmp_path / "logs" / "old" and (tmp_path / "logs" / "old").is_dir()


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "\udcff" * 255, "n" * 201])
def test_a_file_may_have_the_longest_name_that_the_file_system_takes(tmp_path: Path, name: str) -> None:
    write_bytes(tmp_path / name, b"content")
    assert (tmp_path / name).read_bytes() == b"content"
    assert shortened(name) != shortened(name[:-1] + "m") and len(os.fsencode(shortened(name))) <= 200
    assert shortened("n" * 200) == "n" * 200


@pytest.mark.parametrize("name", ["n" * 255, "graph[1]"])
def test_a_folder_of_arrays_may_have_any_name(tmp_path: Path, name: str) -> None:
    with ArrayWriter(tmp_path / name) as writer:
        writer.put("x", np.arange(3))
        writer.finish({"kind": "test", "schema": 1})
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with appearing(tmp_path / "runs" / "one") as place:
        (place / "job.json").write_text("{}")
        assert not (tmp_path / "runs" / "one").exists()
    assert [item.name for item in (tmp_path / "runs").iterdir()] == ["one"]
    with pytest.raises(OSError, match="not empty") as caught, appearing(tmp_path / "runs" / "one"):
        pass
    assert caught.value.filename == str(tmp_path / "runs" / "one")
    assert [item.name for item in (tmp_path / "runs").iterdir()] == ["one"]


def test_what_cannot_be_written_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, appearing(tmp_path / "one") as place:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place / "job.json"))
    assert caught.value.filename == str(tmp_path / "one" / "job.json") and not list(tmp_path.iterdir())


def test_a_folder_of_a_killed_process_is_removed_and_one_that_is_held_stays(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:
        with appearing(tmp_path / "killed") as place:
            (place / "file").write_text("x")
            os._exit(0)  # nothing is cleaned up, as by SIGKILL
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    with appearing(tmp_path / "two"):
        assert left.exists(), "its maker may not have locked it yet"
    os.utime(left, (0, 0))
    with appearing(tmp_path / "three") as held:
        assert not left.exists()
        os.utime(held, (0, 0))
        with appearing(tmp_path / "four"):
            assert held.exists()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["four", "three", "two"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (".gnnexp", "the artifact cache must be writable: this file system has no file locks"),
        ("runs", "this file system has no file locks"),
    ],
)
def test_a_file_system_without_locks_is_named_before_a_run_starts(
    place: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def flock(handle: int, operation: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_relative_to(tmp_path / place):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gnnexp.files.disk.fcntl.flock", flock)
    assert run_command(["run", "dataset=digits", "tracker=none", "hydra.run.dir=runs/one"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs" / "one").exists()


def test_what_belongs_to_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory may be made next to a user's own folders."""
    mine = [tmp_path / name for name in (".mybackup.new", ".gnnexp-notes.new", "runs.new")]
    others = tmp_path / ".gnnexp-0123456789abcdef.new"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / ".gnnexp-fedcba9876543210.new"
    link.symlink_to(tmp_path / "elsewhere")
    for folder in (*mine, others):
        folder.mkdir()
        os.utime(folder, (0, 0))
    os.utime(tmp_path / "elsewhere", (0, 0))
    monkeypatch.setattr("gnnexp.files.disk.os.geteuid", lambda: os.getuid() + 1)
    with appearing(tmp_path / "one"):
        pass
    monkeypatch.undo()
    assert all(folder.is_dir() for folder in (*mine, others, link))
    with appearing(tmp_path / "two"):
        pass
    assert all(folder.is_dir() for folder in (*mine, link)) and not others.exists()


def test_a_file_gets_its_name_at_the_end_and_leftovers_of_killed_processes_go(tmp_path: Path) -> None:
    out = tmp_path / "new" / "p.csv"
    out.parent.mkdir()
    killed, living = out.with_name(".p.csv.7.tmp"), out.with_name(".p.csv.8.tmp")
    other = out.with_name(".q.csv.7.tmp")
    for file in (killed, other):
        file.write_text("half")
    held_by_another = try_lock(living)
    assert held_by_another is not None
    with replaced(out) as file:
        file.write_text("whole")
        assert not killed.exists() and not out.exists()
    os.close(held_by_another)
    assert out.read_text() == "whole"
    assert sorted(path.name for path in out.parent.iterdir()) == [living.name, other.name, out.name]


def test_an_error_leaves_no_file_and_names_the_one_that_was_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    with pytest.raises(OSError, match="No space") as caught, replaced(out) as file:
        file.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    problem = refusal(caught.value)
    assert problem is not None and problem.key == str(out) and f"df -h {tmp_path}" in problem.fix
    assert not list(tmp_path.iterdir())
