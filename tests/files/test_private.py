"""Nobody else enters the private folder: what a file system makes of it is looked at, before and after."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from other_user import NOBODY, acting_as, needs_root, shared_folder
from without_rights import show

from gnnexp.comm.environment import Environment
from gnnexp.comm.meeting import store_of
from gnnexp.errors import ConfigError, RunError
from gnnexp.files.private import PRIVATE, make_private, private_of, remove_private, secret_of


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("run", "mine"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "mine"))
    return tmp_path / "run"


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o710, 0o701])
@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_without_rights_the_secret_of_a_run_on_one_machine_is_elsewhere(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int, variable: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "gone")
    monkeypatch.setenv(variable, str(run_dir.parent / "mine"))
    show(monkeypatch, run_dir, mode=mode)
    folder = make_private(run_dir, here=True)
    assert folder.parent == run_dir.parent / "mine" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert str(folder) in capsys.readouterr().err
    assert private_of(run_dir) == folder and len(secret_of(run_dir) or b"") == 16
    assert secret_of(run_dir.parent) is None, "another run has another folder"
    assert list(run_dir.iterdir()) == []
    make_private(run_dir, here=True)  # of the next attempt
    remove_private(run_dir)
    assert not folder.exists() and secret_of(run_dir) is None


def test_without_rights_no_run_between_machines_is_started(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, run_dir)
    with pytest.raises(ConfigError) as caught:
        make_private(run_dir)
    (problem,) = caught.value.problems
    assert problem.key == str(run_dir / PRIVATE) and "keeps no rights" in problem.allowed and "umask=077" in problem.fix
    assert list(run_dir.iterdir()) == [] and secret_of(run_dir) is None


def test_without_rights_anywhere_no_run_is_started(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, run_dir.parent)
    with pytest.raises(ConfigError, match="keeps no rights"):
        make_private(run_dir, here=True)
    assert [path for path in run_dir.parent.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("user", "works"), [(0, True), (12345, False)])
def test_a_file_server_may_take_root_for_another_user(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, user: int, works: bool
) -> None:
    """Of other users, it then takes all for one: anybody could enter."""
    monkeypatch.setattr("os.geteuid", lambda: user)
    show(monkeypatch, run_dir, mode=0o700, owner=65534)
    if works:
        assert make_private(run_dir) == run_dir / PRIVATE and secret_of(run_dir) is not None
    else:
        with pytest.raises(ConfigError):
            make_private(run_dir)


@needs_root
def test_a_folder_that_another_user_puts_in_its_place_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write to the run directory can move the private folder away; ranks must not take another secret."""
    with shared_folder(0o777) as run_dir:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(run_dir.parent))
        make_private(run_dir)
        with acting_as(NOBODY):
            (run_dir / PRIVATE).rename(run_dir / "away")
            (run_dir / PRIVATE).mkdir(0o700)
            (run_dir / PRIVATE / "secret").write_text("00" * 16)
        assert secret_of(run_dir) is None
        with pytest.raises(RunError, match="others can enter it"):
            store_of(Environment(0, 2, 0, 2), None, run_dir)  # type: ignore[arg-type]


def test_a_folder_that_is_there_is_not_taken(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder for temporary files, everybody can make the name first."""
    show(monkeypatch, run_dir)
    theirs = make_private(run_dir, here=True)
    monkeypatch.setattr("gnnexp.files.private.remove_private", lambda _: None)  # only its owner may
    with pytest.raises(PermissionError) as caught:
        make_private(run_dir, here=True)
    assert caught.value.filename == str(theirs)
    assert list(run_dir.iterdir()) == []
