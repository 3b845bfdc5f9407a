"""The user's repositories in provenance: commit, dirty, difference."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnnexp.provenance.repository import repositories


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("rate = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    (found,) = repositories([checkout / "model.py", checkout])
    assert (found.path, found.commit, found.dirty, found.diff) == (
        str(checkout),
        git(checkout, "rev-parse", "HEAD").strip(),
        False,
        "",
    )


def test_edits_and_files_that_git_does_not_know_are_in_the_difference(checkout: Path) -> None:
    (checkout / "model.py").write_text("rate = 2\n")
    (checkout / "new.py").write_text("other = 3\n")
    (checkout / "unrelated.bin").write_text("not read by the run\n")
    (found,) = repositories([checkout / "model.py", checkout / "new.py"])
    assert found.dirty and "+rate = 2" in found.diff and "+other = 3" in found.diff and "not read" not in found.diff
    before = found.diff_sha256
    (checkout / "new.py").write_text("other = 4\n")
    assert repositories([checkout / "new.py"])[0].diff_sha256 != before


def test_of_a_file_that_is_no_text_there_is_a_digest(checkout: Path) -> None:
    (checkout / "fast.so").write_bytes(b"\x7fELF\0" + bytes(range(256)))
    (found,) = repositories([checkout / "fast.so"])
    assert found.dirty and "b/fast.so (no text, SHA-256 " in found.diff and found.diff.isprintable()


def test_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("rate = 1\n")
    (found,) = repositories([tmp_path / "model.py"])
    assert (found.commit, found.dirty) == ("", True) and "+rate = 1" in found.diff


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    assert repositories([tmp_path]) == []


def test_a_long_difference_is_cut(checkout: Path) -> None:
    (checkout / "model.py").write_text("x = 1\n" * 100_000)
    (found,) = repositories([checkout])
    assert found.dirty and len(found.diff) == 200_000


def test_texts_in_other_encodings_are_shown(checkout: Path) -> None:
    (checkout / "notes.txt").write_bytes(b"caf\xe9\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "second")
    (checkout / "notes.txt").write_bytes(b"th\xe9\n")
    (found,) = repositories([checkout / "model.py"])
    assert found.dirty and "+th\ufffd" in found.diff


def test_files_that_were_added_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("rate = 1\n")
    git(tmp_path, "add", ".")
    (found,) = repositories([tmp_path / "model.py"])
    assert (found.commit, found.dirty) == ("", True) and "+rate = 1" in found.diff


def test_a_package_behind_a_link_is_recorded(checkout: Path) -> None:
    (checkout / "source").mkdir()
    (checkout / "source" / "mine.py").write_text("rate = 3\n")
    (checkout / "package").symlink_to("source")
    (found,) = repositories([checkout / "package" / "mine.py"])
    assert found.dirty and "+rate = 3" in found.diff and "b/source/mine.py" in found.diff


def test_what_is_no_text_is_its_digest(checkout: Path) -> None:
    (checkout / "library.zip").write_bytes(b"PK\0\1")
    (found,) = repositories([checkout / "library.zip"])
    assert found.dirty and "no text, SHA-256" in found.diff and "PK" not in found.diff


def test_a_hook_of_git_names_no_other_repository(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    (found,) = repositories([checkout / "model.py"])
    monkeypatch.delenv("GIT_DIR")
    assert (found.path, found.commit) == (str(checkout), git(checkout, "rev-parse", "HEAD").strip())
