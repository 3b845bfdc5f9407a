"""Folders in which a run would be made of something else, or could not be recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command

HERE = str(Path(__file__).parents[2])
RUN = [
    "run",
    "dataset=digits",
    "tracker=none",
    "model=mine",
    "model.layers=1",
    "sampler.fanouts=[3]",
    "train.epochs=1",
    "--config-dir",
    "conf",
    "hydra.run.dir=run",
]
MODEL = "from gnnexp.models.sage import SAGEOptions\n\n\nclass Mine(SAGEOptions):\n    pass\n"


def gnnexp(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What an installed `gnnexp` does: the current folder is not on its path."""
    program = (
        f"import sys; sys.path[:] = [place for place in sys.path if place]; sys.path.append({HERE!r}); "
        "from gnnexp.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
        errors="replace",
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a model of the user's own."""
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text(
        "_target_: mymodel.Mine\nhidden: 8\nlayers: 1\ndropout: 0.0\n"
    )
    (tmp_path / "mymodel.py").write_text(MODEL)
    return tmp_path


def test_another_gnnexp_in_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout next to an installed one: ranks would be of the checkout, the rest of what is installed."""
    (tmp_path / "gnnexp").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "--cfg"]) == 0, "a folder of that name is none"
    (tmp_path / "gnnexp" / "__init__.py").write_text("")
    assert run_command(["run", "dataset=digits"]) == 2
    assert "has a package gnnexp" in capsys.readouterr().err


@pytest.mark.interpreter
def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    """The records of a run made there could not be read."""
    folder = tmp_path / os.fsdecode(b"b\xff")
    folder.mkdir()
    done = gnnexp(folder, *RUN[:3])
    assert done.returncode == 2 and "is not valid UTF-8" in done.stderr and not list(folder.iterdir())


@pytest.mark.parametrize("variable", ["GNNEXP_CACHE", "GNNEXP_DATA"])
def test_paths_of_the_environment_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, os.fsdecode(b"/data/m\xfcller"))
    assert run_command(["run", "dataset=digits", "tracker=none"]) == 2
    assert variable in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.interpreter
def test_ranks_find_the_modules_of_the_folder_where_python_leaves_it_out(project: Path) -> None:
    done = gnnexp(project, *RUN, PYTHONSAFEPATH="1", PYTHONPATH=HERE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.interpreter
def test_ranks_find_the_same_modules_as_the_command(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder is on PYTHONPATH, behind another one with a module of the same name."""
    other = tmp_path_factory.mktemp("other")
    (other / "mymodel.py").write_text(MODEL + "    rate = 2\n")
    done = gnnexp(project, *RUN, PYTHONPATH=f"{other}:{project}:{HERE}")
    assert done.returncode == 0, done.stderr
    assert '"run_key": ""' not in (project / "run" / "result.json").read_text()
