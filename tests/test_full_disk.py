"""Disks that are full or read-only while a run, a sweep or a report is written: words, nothing left, and `resume`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import curve, place
from full_disk import remount, small_disk
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.comm.environment import Environment
from gnnexp.errors import DataError, Problem
from gnnexp.launchers.status import Death, judge
from gnnexp.record import ending, heartbeat
from gnnexp.record.attempts import note
from gnnexp.record.failure import failure_of
from gnnexp.record.heartbeat import Heartbeat

__all__ = ["place"]

SMALL = [
    "tracker=none",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[4]",
    "hardware.threads=1",
    "train.eval_every=0",
    "hardware.workers=1",
]
PRETENDED = ["tracker=none", "hardware.launcher.worker_module=pretending_worker"]


@pytest.fixture
def pretending(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = str(Path(__file__).parent / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    return place


def full(path: Path | str = "result.json", number: int = errno.ENOSPC) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp") or ".tmp-" in path.name]


def said(capfd: pytest.CaptureFixture[str]) -> str:
    text = "".join(capfd.readouterr())
    assert "Traceback" not in text, text
    return text


# --- a run -----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_on_a_disk_that_fills_says_so_and_goes_on_when_there_is_room(place, capfd):
    with small_disk(place / "disk", "100k") as disk:
        arguments = ["run", *SMALL, "train.epochs=40", "preflight=off", f"hydra.run.dir={disk / 'run'}"]
        assert run_command(arguments) == 1
        text = said(capfd)
        assert "the disk is full" in text or "its disk is full" in text, text
        assert f"gnnexp resume {disk / 'run'}" in text
        assert not leftovers(disk)
        remount(disk, "size=8m")
        assert run_command(["resume", str(disk / "run")]) == 0, said(capfd)
        assert len(curve(str(disk / "run"))) == 40
        assert json.loads((disk / "run" / "result.json").read_text())["status"] == "finished"
        assert not leftovers(disk)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_result_that_cannot_be_written_is_a_failed_run_in_words(pretending, monkeypatch, capfd, number):
    def refuse(path: Path, _: object) -> None:
        raise full(path, number)

    monkeypatch.setattr(ending, "write_json", refuse)
    assert run_command(["run", *PRETENDED, "optimizer.lr=9", "hydra.run.dir=run"]) == 1
    text = said(capfd)
    words = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "your quota on this disk is exceeded"}[number]
    assert words in text and "run/result.json" in text and "then: gnnexp resume run" in text, text
    assert "too fast" in text, "why the run itself had failed"
    monkeypatch.undo()


def test_a_breakdown_that_cannot_be_written_takes_nothing_from_a_run_that_has_finished(pretending, monkeypatch, capfd):
    def refuse(*_: object) -> None:
        raise full("run/figures/breakdown.csv")

    with monkeypatch.context() as patch:
        patch.setattr("gnnexp.cli.running.execute.break_down", refuse)
        assert run_command(["run", *PRETENDED, "hydra.run.dir=run"]) == 0
    assert "the disk is full" in said(capfd) and not Path("run/figures").exists()
    assert run_command(["resume", "run"]) == 0
    assert Path("run/figures/breakdown.csv").exists(), "resume of a finished run makes what is missing"


def test_resume_of_a_finished_run_removes_what_a_killed_launcher_and_its_ranks_left(pretending):
    assert run_command(["run", *PRETENDED, "hydra.run.dir=run"]) == 0
    left = [Path("run/private/secret"), Path("run/status/.rank_0.json.27279.tmp")]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_text("{")
    assert run_command(["resume", "run"]) == 0
    assert not any(file.exists() for file in left) and not Path("run/private").exists()


def test_a_run_directory_that_cannot_be_filled_is_removed(pretending, monkeypatch, capfd):
    def refuse(path: Path, _: object) -> None:
        raise full(path)

    monkeypatch.setattr("gnnexp.cli.running.execute.write_json", refuse)
    assert run_command(["run", *PRETENDED, "hydra.run.dir=run"]) == 2
    assert "the disk is full" in said(capfd) and not Path("run").exists()


@pytest.mark.parametrize("jobs", [[], ["--jobs", "2"]])
def test_a_file_where_a_sweep_keeps_its_states_is_named(place, capfd, jobs):
    (place / "s.yaml").write_text(
        json.dumps({"description": "two", "fixed": [*SMALL, "train.epochs=1"], "axes": {"seed": [0, 1]}})
    )
    (place / "runs").mkdir()
    (place / "runs" / "sweeps").touch()
    assert run_command(["sweep", "s.yaml", *jobs]) == 2
    text = said(capfd)
    assert "runs/sweeps" in text and "must be a folder, and is a file" in text and "move the file away" in text


# --- a rank ----------------------------------------------------------------------------------------------------------
def test_a_rank_names_what_it_could_not_write():
    failure = failure_of(full("/r/epochs.jsonl"))
    assert (failure.kind, failure.exit_code, failure.trace) == ("disk", 74, "")
    assert failure.reason.startswith("the disk is full: /r/epochs.jsonl") and "make room" in failure.reason


def test_a_full_disk_that_was_put_into_words_is_no_mistake_of_the_run(tmp_path):
    """`gnnexp tune` counts a trial that failed by its own configuration, and never makes it again."""

    def prepare(number: int) -> None:
        try:
            raise full("/cache/graph", number)
        except OSError as error:
            raise DataError(Problem("/cache", error.strerror, "features needs 2 GiB of disk", "make room")) from None

    for number, kind in ((errno.ENOSPC, "disk"), (errno.ENOENT, "mistake")):
        with pytest.raises(DataError) as caught:
            prepare(number)
        failure = failure_of(caught.value)
        assert (failure.kind, failure.exit_code) == (kind, 2)
        (tmp_path / "status").mkdir(exist_ok=True)
        words = {"rank": 0, "state": "failed", "time": 5.0, "reason": failure.reason, "kind": kind, "exit_code": 2}
        (tmp_path / "status" / "rank_0.json").write_text(json.dumps(words))
        assert judge(tmp_path, []).kind == kind


def test_a_rank_whose_last_word_found_no_room_is_believed_by_its_exit_code(tmp_path):
    (tmp_path / "status").mkdir()
    outcome = judge(tmp_path, [Death(1, 1, 5.0), Death(0, 74, 5.0)])
    assert (outcome.kind, outcome.may_be_repeated) == ("disk", False)
    assert outcome.reason.startswith("rank 0 could not write: its disk is full")


def test_a_heart_beats_on_when_a_full_disk_has_room_again(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "PERIOD_S", 0.01)
    tries = []

    def write(path: Path, value: Any) -> None:
        tries.append(value)
        if len(tries) < 3:
            raise full(path)

    monkeypatch.setattr(heartbeat, "write_json", write)
    heart = Heartbeat(tmp_path, Environment())
    heart.start()
    end = time.monotonic() + 20
    while len(tries) < 5 and time.monotonic() < end:
        time.sleep(0.01)
    heart.last_word("finished")
    heart.join(20)
    assert len(tries) >= 5


# --- a sweep ---------------------------------------------------------------------------------------------------------
def write_sweep(place: Path, seeds: list[int]) -> None:
    sweep = {"fixed": PRETENDED, "axes": {"seed": seeds}, "report": {"figures": []}}
    (place / "mine.yaml").write_text(json.dumps(sweep))


@pytest.mark.parametrize("where", [pytest.param("write_job", marks=pytest.mark.slow), "save_states", "finalize"])
def test_a_full_disk_ends_no_sweep(pretending, monkeypatch, capfd, where):
    """Room is missing for the second case only: the third one finishes, and the next call makes up for it."""
    write_sweep(pretending, [0, 1, 2])
    from gnnexp.cli.running import execute
    from gnnexp.cli.sweeping import queue

    module = {"write_job": execute, "save_states": queue, "finalize": ending}[where]
    work, calls = getattr(module, where), []

    def refuse(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise full("runs/mine/two")
        return work(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, where, refuse)
        code = run_command(["sweep", "mine.yaml"])
    text = said(capfd)
    assert "the disk is full" in text and code == (0 if where in ("save_states", "finalize") else 1), text
    assert not leftovers(pretending)
    results = [json.loads(path.read_text()) for path in pretending.glob("runs/mine/*/result.json")]
    assert [one["status"] for one in results].count("finished") == (2 if where == "write_job" else 3)
    assert run_command(["sweep", "mine.yaml"]) == 0
    assert [json.loads(path.read_text())["status"] for path in pretending.glob("runs/mine/*/result.json")].count(
        "finished"
    ) == 3


@pytest.mark.timeout(200)
def test_a_sweep_whose_output_has_no_room_goes_on(pretending):
    """As under `nohup gnnexp sweep NAME > LOG`, with the log on a disk that fills."""
    write_sweep(pretending, [0, 1])
    with small_disk(pretending / "disk", "4k") as disk, (disk / "log").open("w") as log:
        log.write("x" * 4096)
        log.flush()
        command = [sys.executable, "-m", "gnnexp", "sweep", "mine.yaml"]
        done = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=180)
    assert done.returncode == 0
    results = [json.loads(path.read_text()) for path in pretending.glob("runs/mine/*/result.json")]
    assert [one["status"] for one in results] == ["finished"] * 2


# --- commands --------------------------------------------------------------------------------------------------------
def make_run(run_dir: Path) -> None:
    write_job(run_dir, dataset_key="abc")
    job = json.loads((run_dir / "job.json").read_text())
    job["config"]["train"]["epochs"] = 3
    (run_dir / "job.json").write_text(json.dumps(job))
    write_epochs(run_dir, 2)
    note(run_dir, "start", pid=1)
    (run_dir / "lock").touch()


def test_commands_on_a_disk_that_is_mounted_read_only(pretending, capfd):
    with small_disk(pretending / "disk", "32m") as disk:
        failed = str(disk / "failed")
        assert run_command(["run", *PRETENDED, "optimizer.lr=9", f"hydra.run.dir={failed}"]) == 1
        make_run(disk / "stopped")
        make_run(disk / "finished")
        write_result(disk / "finished")
        remount(disk, "ro")
        assert run_command(["status", str(disk / "stopped")]) == 0
        assert "stopped (gnnexp resume" in said(capfd)
        assert run_command(["status", str(disk / "finished")]) == 0
        assert "finished" in said(capfd)
        assert run_command(["status", failed]) == 1 and run_command(["logs", failed]) == 0
        said(capfd)
        assert run_command(["cancel", failed]) == 2
        assert "no process of this machine works on it" in said(capfd)
        for command in (["resume", failed], ["resume", failed, "hardware.workers=1"]):
            assert run_command(command) == 2
            assert "the disk is mounted read-only" in said(capfd)
        assert run_command(["run", *PRETENDED, f"hydra.run.dir={failed}", "--rerun"]) == 2
        assert run_command(["report", str(disk / "finished"), "--out", str(disk / "report")]) == 2
        assert "Traceback" not in said(capfd)


def test_a_report_on_a_full_disk_leaves_nothing_half_written(place, capfd):
    make_run(place / "finished")
    write_result(place / "finished")
    with small_disk(place / "disk", "12k") as disk:
        assert run_command(["report", "finished", "--out", str(disk / "report")]) == 2
        assert "the disk is full" in said(capfd)
        assert not leftovers(disk) and all(path.stat().st_size for path in disk.rglob("*.png"))


def test_a_cache_without_room_for_a_folder_is_said(pretending, monkeypatch, capfd):
    """Not even the temporary folder of an artifact can be made."""

    def refuse(*_: object, **__: object) -> str:
        raise full("cache/graphs/.x")

    monkeypatch.setenv("GNNEXP_CACHE", str(pretending / "new_cache"))
    with monkeypatch.context() as patch:
        patch.setattr("gnnexp.preparation.artifacts.make_staging", refuse)
        assert run_command(["run", *PRETENDED, "hydra.run.dir=run"]) == 2
    text = said(capfd)
    assert "the artifact cache needs room" in text and "GNNEXP_CACHE" in text, text
    shutil.rmtree(pretending / "new_cache")
