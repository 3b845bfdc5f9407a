"""Each odd data set of tests/data/odd trains with the command that `gnnexp data` prints."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.main import run_command

ODD = Path(__file__).parents[2] / "data" / "odd"
SMALL = ["train.epochs=1", "tracker=none", "model.hidden=8", "train.batch_size=32"]
# The overrides that must be found, next to those that follow from the names of files; the classes; D.
SETS: dict[str, tuple[list[str], list[str], list[str], int]] = {
    "only_names": ([], ["dataset.header=false"], [], 0),
    "words_in_json": (["--label", "page_type"], ["dataset.features=club_features.json"], ["government", "tvshow"], 32),
    "snap_list": ([], [], [], 0),
    "german_export": ([], ["dataset.encoding=latin-1", "dataset.decimal=','"], ["grün", "rot"], 1),
    "windows_tabs": ([], [], ["a", "b"], 1),
    "parquet_shards": ([], ["dataset.nodes=nodes", "dataset.edges=edges"], ["0", "1"], 4),
    "two_types": ([], ["model=rgcn"], ["ICML", "KDD"], 4),
    "packed_weights": ([], ["dataset.edges=network.csv.gz"], [], 0),
    "no_names": ([], ["dataset.id=column0", "dataset.label=column1"], ["1", "2"], 0),
    "quoted_ids": ([], [], ["blue", "red"], 0),
    "dates_and_split": ([], ["dataset.split=column", "dataset.id=user_id"], ["bot", "human"], 1),
    "missing_values": ([], ["dataset.nulls=['','NA','?']", "dataset.empty=mean"], ["no", "yes"], 2),
}
# Links without features, vertices with features, relations, weights: what is trained differs, not only what is read.
TRAINED = ("only_names", "dates_and_split", "two_types", "packed_weights")


def looked(name: str, capsys: Any) -> dict[str, Any]:
    code = run_command(["data", str(ODD / name), *SETS[name][0], "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_all_folders_are_in_the_table() -> None:
    assert {one.name for one in ODD.iterdir() if one.is_dir() and not one.name.startswith("_")} == {*SETS}


@pytest.mark.interpreter
def test_the_script_makes_them(tmp_path: Path) -> None:
    """The bytes of Parquet and of packed files depend on the versions of libraries."""
    subprocess.run([sys.executable, str(ODD / "make.py"), str(tmp_path)], check=True)
    files = [one.relative_to(tmp_path) for one in tmp_path.rglob("*") if one.is_file()]
    assert len(files) == len([one for one in ODD.rglob("*/*") if one.is_file() and "__pycache__" not in one.parts])
    for file in files:
        if file.suffix not in (".parquet", ".gz"):
            assert (ODD / file).read_bytes() == (tmp_path / file).read_bytes(), file


def of_the_table(name: str, capsys: Any) -> list[str]:
    """The overrides that are found; they are those of the table."""
    found = looked(name, capsys)
    _, overrides, classes, width = SETS[name]
    run: list[str] = found["run"]
    assert {*overrides} <= {*run}, run
    assert found["names"]["classes"] == classes and found["features"] == width
    assert shlex.split(found["command"]) == ["gnnexp", "run", *run]
    return run


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in TRAINED else pytest.mark.slow) for one in SETS])
def test_an_odd_data_set_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_the_table(name, capsys)
    assert run_command(["run", *found, *SMALL, "hydra.run.dir=run"]) == 0, capsys.readouterr().err
    losses = json.loads(Path("run/result.json").read_text())["epochs"]
    assert len(losses) == 1


@pytest.mark.parametrize("name", [one for one in SETS if one not in TRAINED])
def test_an_odd_data_set_is_prepared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """All that a run does before its ranks start."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["prepare", *of_the_table(name, capsys), *SMALL, "hydra.run.dir=run"]) == 0
    assert json.loads(Path("run/job.json").read_text())["graph"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.interpreter
def test_the_printed_command_trains_in_a_shell(name: str, tmp_path: Path, capsys: Any) -> None:
    command = looked(name, capsys)["command"].replace("gnnexp", f"{shlex.quote(sys.executable)} -m gnnexp", 1)
    done = subprocess.run(
        f"{command} {' '.join(SMALL)}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
