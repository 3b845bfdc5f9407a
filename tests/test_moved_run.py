"""A run directory that is moved, replaced or removed while ranks train: the run ends in words, and goes on there."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import wait_until

from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError
from gnnexp.files.disk import HeldFolder, put_back
from gnnexp.files.regular import read_json
from gnnexp.record.attempts import alone, note
from gnnexp.record.records import read_epochs
from gnnexp.training.checkpoint import checkpoint_folders

LONG = (
    "dataset=digits",
    "hardware.workers=2",
    "model.hidden=8",
    "tracker=none",
    "train.epochs=100000",
    "train.checkpoint_every=1",
)


def _run_and(disturb: Callable[[Path], object], folder: Path) -> int:
    """Exit code of a long run whose directory is disturbed after its third epoch."""
    run_dir = folder / "m"

    def when_it_trains() -> None:
        log = run_dir / "epochs.jsonl"
        assert wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 3, 120)
        disturb(run_dir)

    other = threading.Thread(target=when_it_trains)
    other.start()
    try:
        return run_command(["run", *LONG, f"hydra.run.dir={run_dir}"])
    finally:
        other.join()


@pytest.mark.slow
def test_a_moved_run_says_where_it_is_and_goes_on_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "elsewhere" / "m 2"
    place.parent.mkdir()
    assert _run_and(lambda run_dir: run_dir.rename(place), tmp_path) == 1
    said = capfd.readouterr().err
    assert f"was moved or removed while the run trained; it is {place} now: gnnexp resume '{place}'" in said
    assert "Traceback" not in said
    assert not (tmp_path / "m").exists(), "its old name is made again"
    epochs = [json.loads(line)["epoch"] for line in (place / "epochs.jsonl").read_text().splitlines()]
    assert epochs == [*range(len(epochs))] and len(epochs) >= 3

    job = json.loads((place / "job.json").read_text())
    job["config"]["train"]["epochs"] = len(epochs) + 2
    (place / "job.json").write_text(json.dumps(job))
    assert run_command(["resume", str(place)]) == 0
    result = json.loads((place / "result.json").read_text())
    assert [line["epoch"] for line in result["epochs"]] == [*range(len(epochs) + 2)]


@pytest.mark.slow
def test_a_run_whose_directory_is_replaced_ends_and_goes_on_in_the_old_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def replace(run_dir: Path) -> None:
        run_dir.rename(tmp_path / "m2")
        run_dir.mkdir()
        (run_dir / "mine").touch()

    assert _run_and(replace, tmp_path) == 1
    assert f"it is {tmp_path / 'm2'} now: gnnexp resume {tmp_path / 'm2'}" in capfd.readouterr().err
    assert (tmp_path / "m" / "mine").exists()
    epochs = [line["epoch"] for line in read_epochs(tmp_path / "m2")]
    position = read_json(next(iter(checkpoint_folders(tmp_path / "m2"))) / "checkpoint.json")["position"]
    assert epochs == [*range(len(epochs))] and position["epoch"] <= len(epochs), "the next attempt leaves no gap"


@pytest.mark.slow
def test_a_removed_run_ends_in_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _run_and(lambda run_dir: shutil.rmtree(run_dir, ignore_errors=True), tmp_path) == 1
    said = capfd.readouterr().err
    assert f"was moved or removed while the run trained; put it back, then: gnnexp resume {tmp_path / 'm'}" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("removed", [False, True])
def test_a_run_that_is_moved_before_its_ranks_start_is_explained(tmp_path: Path, *, removed: bool) -> None:
    run_dir = tmp_path / "m"
    run_dir.mkdir()
    now = put_back(run_dir, "gnnexp resume") if removed else f"it is {tmp_path / 'm2'} now"
    with pytest.raises(ConfigError, match="moved or removed") as caught, alone(run_dir):
        shutil.rmtree(run_dir) if removed else run_dir.rename(tmp_path / "m2")
        note(run_dir, "start")
    assert now in caught.value.problems[0].fix
    with pytest.raises(ConfigError, match="moved or removed"), alone(run_dir):
        pass


def test_another_missing_file_is_no_moved_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), alone(tmp_path):
        (tmp_path / "job.json").read_text()


def test_a_directory_is_known_by_what_it_is_not_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    place = HeldFolder(folder)
    assert not place.is_left()
    folder.rename(tmp_path / "m2")
    assert place.is_left() and place.fix("go") == f"it is {tmp_path / 'm2'} now: go {tmp_path / 'm2'}"
    folder.mkdir()
    assert place.is_left() and str(tmp_path / "m2") in place.fix("go")
    folder.rmdir()
    (tmp_path / "m2").rename(folder)
    assert not place.is_left(), "it is back"
    folder.rmdir()
    assert place.is_left() and place.fix("go") == f"put it back, then: go {folder}"
    place.close()


def test_what_rm_could_not_remove_of_a_run_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "job.json").touch()
    place = HeldFolder(tmp_path, "job.json")
    assert not place.is_left()
    (tmp_path / "job.json").unlink()
    assert place.is_left()
    place.close()
