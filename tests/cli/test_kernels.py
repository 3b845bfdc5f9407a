"""Where an installed gnnexp keeps its compiled kernels, and that it says when they are missing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from gnnexp.cli import kernels
from gnnexp.cli.kernels import VARIABLE, place_kernels, sources_digest


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in `site-packages`, a home, and a current folder."""
    package = tmp_path / "site-packages" / "gnnexp"
    (package / "kernels").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernels" / "sum.py").write_text("one = 1\n")
    (package / "data.py").write_text("@compiled(nogil=True)\ndef draw(): ...\n")
    (package / "words.py").write_text("text = 1\n")
    monkeypatch.setattr(kernels.gnnexp, "__file__", str(package / "__init__.py"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("GNNEXP_CACHE", raising=False)
    monkeypatch.setenv(VARIABLE, "x")  # restored afterwards, whatever is set meanwhile
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return package


def placed(*, tell: bool = False) -> str | None:
    """Where the next command would look for kernels."""
    os.environ.pop(VARIABLE, None)
    place_kernels(tell=tell)
    return os.environ.get(VARIABLE)


def test_an_upgrade_finds_no_old_kernels(installed: Path, tmp_path: Path) -> None:
    before = placed()
    assert before == str(tmp_path / "home" / ".cache" / "gnnexp" / f"kernels-{sources_digest(installed)}")
    (installed / "words.py").write_text("text = 2\n")
    assert placed() == before, "no kernel is made of it"
    folders = {before}
    for name in ("kernels/sum.py", "data.py"):
        (installed / name).write_text((installed / name).read_text() + "two = 2\n")
        folders.add(placed())
    assert len(folders) == 3


def test_kernels_are_kept_where_the_home_is_read_only(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("no folder can be made below a file")
    name = f"kernels-{sources_digest(installed)}-{os.getuid()}"
    assert placed() == str(tmp_path / "here" / ".gnnexp" / name)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    assert placed() == str(tmp_path / "cache" / name)
    assert (tmp_path / "cache" / name).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["of another user", "that others may write to", "a link"])
def test_kernels_in_a_shared_cache_are_only_ones_own(
    kind: str, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled kernels are pickles."""
    (tmp_path / "home").write_text("no folder can be made below a file")
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "cache" / f"kernels-{sources_digest(installed)}-{os.getuid()}"
    folder.parent.mkdir()
    if kind == "a link":
        (tmp_path / "theirs").mkdir()
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.mkdir()
        folder.chmod(0o777 if kind.startswith("that") else 0o755)
    if kind == "of another user":
        monkeypatch.setattr("gnnexp.cli.kernels.os.getuid", lambda: 12345)
        folder.rename(folder.with_name(f"kernels-{sources_digest(installed)}-12345"))
    found = Path(placed() or "")
    assert found.parent == tmp_path and found.name.startswith("gnnexp-kernels-")


def test_what_the_user_chose_stays(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    place_kernels(tell=False)
    assert os.environ[VARIABLE] == str(tmp_path / "mine")


def test_a_checkout_keeps_those_of_make_setup(installed: Path) -> None:
    (installed.parent / "pyproject.toml").write_text("")
    assert placed() is None


def test_missing_kernels_are_said_once(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = placed(tell=True)
    said = capsys.readouterr().err
    assert f"compiling kernels into {folder}" in said and f"{VARIABLE}={folder} python -m gnnexp.kernels.warmup" in said
    (Path(folder or "") / "kernels_x").mkdir()
    (Path(folder or "") / "kernels_x" / "sum-1.py311.nbi").touch()
    placed(tell=True)
    assert capsys.readouterr().err == ""
