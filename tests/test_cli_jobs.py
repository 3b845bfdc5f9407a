"""`status`, `cancel`, `resume` and a repeated sweep of submitted runs, while SLURM answers or does not."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm import DOWN, at, install, make_run

from gnnexp.cli.main import run_command

ERROR = DOWN.partition(": ")[2]
# What squeue does instead of answering; none of it says that a job has ended.
SILENT = {
    "an error": f"echo '{ERROR}' >&2; exit 1",
    "nothing": "exit 0",
    "garbage": r"printf '\000\377<html>|||\n'",
    "a warning": f"echo '{ERROR}' >&2",
    "half an answer": "printf '4711_[0'; exit 1",
    "a crash": "kill -SEGV $$",
    "a state of the future": "printf '4711_%s|WARPING|N/A|None\\n' 0 1 2",
    "other jobs": "echo '12|RUNNING|N/A|None'",
}


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a sweep of three runs, which wait in the queue as one array, and commands of a SLURM."""
    place = tmp_path_factory.mktemp("submitted")
    commands = place / "bin"
    install(commands, "sinfo", "echo 'debug*|infinite|2|2|6000|(null)'")
    install(commands, "sbatch", "echo 'Submitted batch job 4711'")
    install(commands, "srun", "exit 1")
    for name in ("sacct", "scancel", "scontrol"):
        install(commands, name, f"echo {name} $* >> $PLACE/asked; echo '{ERROR}' >&2; exit 1")
    fixed = ["dataset=digits", "train.epochs=2", "tracker=none", "hardware=slurm_cpu", "hardware.detach=true"]
    cases = [{"overrides": [f"seed={seed}"]} for seed in range(3)]
    (place / "three.yaml").write_text(json.dumps({"description": "three", "fixed": fixed, "cases": cases}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        patch.setenv("PLACE", str(place))
        patch.setenv("GNNEXP_CACHE", str(place.parent / "cache"))
        assert run_command(["sweep", "three.yaml"]) == 0
        yield place


@pytest.fixture
def place(submitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    shutil.copytree(submitted, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("PLACE", str(tmp_path / "place"))
    monkeypatch.setenv("PATH", f"{tmp_path}/place/bin:{os.environ['PATH']}")
    return tmp_path / "place"


def squeue(place: Path, script: str) -> None:
    install(place / "bin", "squeue", f"echo squeue $* >> $PLACE/asked; {script}")


def calls(place: Path) -> list[str]:
    """The commands that were called."""
    return [line.split()[0] for line in (place / "asked").read_text().splitlines()]


def runs(place: Path) -> list[Path]:
    return sorted((place / "runs" / "three").iterdir())


def heard(run_dir: Path, seconds_ago: float = 1.0) -> Path:
    """The run, whose rank was heard so long ago, as was its submission."""
    noted = (run_dir / "slurm.json").read_text()
    make_run(run_dir, silent_s=seconds_ago)
    (run_dir / "slurm.json").write_text(noted)
    os.utime(run_dir / "slurm.json", (time.time() - seconds_ago,) * 2)
    return run_dir


def state_of(run_dir: Path) -> dict[str, bytes]:
    """Everything in a run directory but the lock."""
    files = (file for file in sorted(run_dir.rglob("*")) if file.is_file() and file.name != "lock")
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("what", SILENT)
def test_a_run_whose_job_is_unknown_keeps_its_directory(
    place: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(place, SILENT[what])
    run_dir = heard(runs(place)[0])
    before = state_of(run_dir)
    assert run_command(["status", str(run_dir)]) == 0
    assert "SLURM job 4711_0 unknown (" in capsys.readouterr().out
    for command in (["resume", str(run_dir)], ["resume", "--job-ended", str(run_dir)], ["cancel", str(run_dir)]):
        assert run_command(command) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said and "has ended" not in said.partition("fix:")[0]
        assert "4711_0 unknown" in said or "was active" in said
    assert state_of(run_dir) == before


@pytest.mark.parametrize(
    "what",
    [
        what if what in ("an error", "nothing", "other jobs") else pytest.param(what, marks=pytest.mark.slow)
        for what in SILENT
    ],
)
def test_a_repeated_sweep_leaves_them_and_asks_once_for_all(
    place: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(place, SILENT[what])
    before = {run_dir: state_of(heard(run_dir)) for run_dir in runs(place)}
    assert run_command(["sweep", "three.yaml"]) == 1
    assert "3 running elsewhere" in capsys.readouterr().out
    assert {run_dir: state_of(run_dir) for run_dir in runs(place)} == before, "nothing new, nothing changed"
    assert calls(place).count("squeue") == 1


def test_a_repeated_sweep_goes_on_with_what_has_ended(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = f"4711_0|RUNNING|N/A|None\n4711_1|TIMEOUT|{at(90)}|None\n4711_[2]|PENDING|N/A|Priority"
    squeue(place, f"cat <<END\n{lines}\nEND")
    install(place / "bin", "sbatch", "echo 'Submitted batch job 4712'")
    for run_dir in runs(place):
        heard(run_dir)
    assert run_command(["sweep", "three.yaml"]) == 0
    out = capsys.readouterr().out
    assert "2 running elsewhere" in out and "1 submitted" in out and "submitted 4712" in out
    noted = [json.loads((run_dir / "slurm.json").read_text())["job_id"] for run_dir in runs(place)]
    assert noted == ["4711_0", "4712", "4711_2"] and calls(place).count("squeue") == 1


def test_a_job_that_slurm_has_forgotten_frees_its_run_when_it_was_silent(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(place, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    run_dir = heard(runs(place)[0], seconds_ago=30)
    assert run_command(["resume", str(run_dir)]) == 2 and "does not list it" in capsys.readouterr().err
    heard(run_dir, seconds_ago=200)
    assert run_command(["status", str(run_dir)]) == 1 and "vanished" in capsys.readouterr().out
    assert json.loads((run_dir / "result.json").read_text())["status"] == "failed"
    assert run_command(["cancel", str(run_dir)]) == 2 and "has ended" in capsys.readouterr().err
    install(place / "bin", "sbatch", "echo 'Submitted batch job 4712'")
    assert run_command(["resume", str(run_dir)]) == 0 and "4712" in capsys.readouterr().out


def test_where_no_slurm_can_be_asked_any_more_its_user_says_that_it_has_ended(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(place, SILENT["an error"])
    run_dir = heard(runs(place)[0], seconds_ago=1e6)
    assert run_command(["resume", str(run_dir)]) == 2 and "--job-ended" in capsys.readouterr().err
    token = json.loads((run_dir / "slurm.json").read_text())["token"]
    assert run_command(["resume", "--job-ended", str(run_dir)]) == 0
    assert json.loads((run_dir / "slurm.json").read_text())["token"] != token, "the earlier job would leave the run"


@pytest.mark.slow
def test_a_run_resumed_on_this_machine_is_no_longer_its_jobs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    squeue(place, f"echo '4711_0|TIMEOUT|{at(90)}|None'")
    run_dir = heard(runs(place)[0])
    local = [
        "hardware.launcher={_target_: gnnexp.launchers.local.LocalLauncher}",
        "hardware.workers=1",
        "hardware.detach=false",
    ]
    assert run_command(["resume", str(run_dir), *local]) == 0, capsys.readouterr().err
    assert not (run_dir / "slurm.json").exists()
    assert json.loads((run_dir / "result.json").read_text())["status"] == "finished"


def test_cancel_reaches_a_job_that_squeue_does_not_show(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    squeue(place, SILENT["nothing"])
    install(place / "bin", "scancel", "exit 0")
    assert run_command(["cancel", str(heard(runs(place)[0]))]) == 0
    assert "is cancelled" in capsys.readouterr().out


def test_a_damaged_note_is_named_and_leaves_the_run_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    squeue(place, SILENT["an error"])
    (runs(place)[0] / "slurm.json").write_text("{")
    for command in ("status", "cancel", "resume"):
        assert run_command([command, str(runs(place)[0])]) == 2
        assert "slurm.json" in capsys.readouterr().err
    assert run_command(["sweep", "three.yaml"]) == 1
    assert "3 running elsewhere" in capsys.readouterr().out and not (runs(place)[0] / "result.json").exists()
