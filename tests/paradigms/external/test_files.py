"""The files that identify a command: an edit of any of them is seen, and nothing else counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile_places import SPARSE_BYTES, hostile

from gnnexp.errors import DataError
from gnnexp.paradigms.external.files import digest_of_all, digests_of, files_of, program


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "system" / "parts").mkdir(parents=True)
    for name, text in {
        "system/train.py": "import numpy\nimport layers\nfrom parts import one\n",
        "system/layers.py": "",
        "system/parts/__init__.py": "",
        "system/parts/one.py": "import json",
        "system/unused.py": "",
        "options.yaml": "",
        "run.sh": "",
        "loose.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def names(*command: str, files: tuple[str, ...] = ()) -> set[str]:
    return set(map(str, files_of(command, files)))


SCRIPT = {"system/train.py", "system/layers.py", "system/parts/__init__.py", "system/parts/one.py"}


def test_a_script_and_what_it_imports_from_its_folder(place: Path) -> None:
    assert names("python", "system/train.py", "--epochs", "3") == SCRIPT
    assert names("torchrun", "--nproc-per-node", "2", "system/train.py") == SCRIPT


def test_a_module(place: Path) -> None:
    assert names("python", "-m", "system.train") >= {"system/train.py"}
    assert names("python", "-m", "loose") == {"loose.py"} and names("python", "-m") == set()


def test_options_and_programs(place: Path) -> None:
    assert names("./run.sh", "--config=options.yaml") == {"run.sh", "options.yaml"}
    assert names("python") == names("run.sh") == names("echo", "x" * 5000, "a\0b", "") == set()


def test_further_files_and_folders(place: Path) -> None:
    (place / "system" / "__pycache__").mkdir()
    (place / "system" / "__pycache__" / "train.pyc").touch()
    assert names("echo", files=("system", "run.sh")) == {*SCRIPT, "system/unused.py", "run.sh"}


@pytest.mark.parametrize("edited", sorted(SCRIPT))
def test_an_edit_is_another_digest(place: Path, edited: str) -> None:
    def digest() -> str:
        return digest_of_all(digests_of(files_of(["python", "system/train.py"], ())))

    before = digest()
    (place / "system" / "unused.py").write_text("x = 1")
    assert digest() == before
    (place / edited).write_text((place / edited).read_text() + "x = 1\n")
    assert digest() != before


def test_files_that_change_places_are_an_edit(place: Path) -> None:
    files = [place / "system" / "parts" / "one.py", place / "system" / "one.py"]
    files[1].write_text("x = 1")
    before = digest_of_all(digests_of(files))
    texts = [file.read_text() for file in files]
    for file, text in zip(files, reversed(texts), strict=True):
        file.write_text(text)
    assert digest_of_all(digests_of(files)) != before


def test_the_place_of_a_folder_does_not_count(place: Path) -> None:
    before = digest_of_all(digests_of(files_of(["python", "system/train.py"], ())))
    (place / "system").rename(place / "elsewhere")
    assert digest_of_all(digests_of(files_of(["python", "elsewhere/train.py"], ()))) == before


def test_a_script_for_another_python_counts_by_its_bytes(place: Path) -> None:
    (place / "old.py").write_text("print 'Python 2'\n")
    assert names("python2", "old.py") == {"old.py"} and digests_of([Path("old.py")])


def test_a_file_that_is_gone_is_named(place: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.py"):
        digests_of([Path("gone.py")])


@pytest.mark.parametrize("kind", ["missing", "closed", "loop", "fifo", "long"])
def test_what_is_no_readable_file_is_named(place: Path, kind: str) -> None:
    """Nobody writes to the FIFO; the superuser may read what is closed."""
    path = hostile(place / "hostile" / "weights.bin", kind)
    assert names("echo", files=(str(path),)) == {str(path)}
    if kind != "closed" or os.geteuid():
        with pytest.raises(DataError, match=path.name[:100]):
            digests_of([path])


def test_of_a_large_file_size_and_time_count(place: Path) -> None:
    path = hostile(place / "hostile" / "weights.bin", "sparse")
    assert digests_of([path])[str(path)].startswith(f"{SPARSE_BYTES} bytes")


@pytest.mark.interpreter
def test_python_is_that_of_gnnexp(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("PATH", "/nowhere")
    assert Path(program("python") or "").parent == Path(sys.executable).parent
    assert program("no-such-program") is None
