"""`gnnexp run -m`: a sweep whose cases come from Hydra's sweepers; it skips, resumes and reports as any sweep."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from run_folder import write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher

SMALL = ["tracker=none", "model.hidden=8", "model.layers=1", "sampler.fanouts=[4]", "train.epochs=2"]
PRETENDED = ["tracker=none", "+hardware.launcher.worker_module=pretending_worker"]
SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    here = str(Path(__file__).parent / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    known = Plugins.instance().class_name_to_class
    sweeper = known[SWEEPER]
    yield tmp_path
    known[SWEEPER] = sweeper


def multirun(*words: str) -> int:
    return run_command(["run", "-m", *words])


def statuses(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["status"] for path in sorted(folder.glob("*/result.json"))]


def cases(place: Path) -> list[dict[str, Any]]:
    """Of the only multirun."""
    (state,) = (place / "runs" / "sweeps").glob("*.json")
    found: list[dict[str, Any]] = json.loads(state.read_text())["cases"]
    return found


def test_every_job_is_a_run_and_a_failure_stops_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert multirun(*SMALL, "optimizer.lr=1e300,0.01", "hydra.sweep.dir=jobs") == 1
    states = [json.loads((place / "jobs" / str(n) / "result.json").read_text()) for n in (0, 1)]
    assert [state["status"] for state in states] == ["failed", "finished"] and states[0]["kind"] == "diverged"
    assert not (place / "jobs" / "1" / ".hydra").exists() and (place / "jobs" / "multirun.yaml").exists()
    assert [(case["label"], case["status"]) for case in cases(place)] == [
        ("optimizer.lr=1e+300", "failed"),
        ("optimizer.lr=0.01", "finished"),
    ]
    name = states[1]["provenance"]["sweep"]
    said = capsys.readouterr().out
    assert f"report {name}" in said and (place / "reports" / name / "table.md").exists()
    assert "optimizer.lr" in (place / "reports" / name / "table.csv").read_text().splitlines()[0], "jobs differ in it"
    capsys.readouterr()
    assert run_command(["report", name]) == 0 and "0.01" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hydra/launcher=submitit_slurm"], "hardware=slurm_cpu"),
        (["hydra/launcher=joblib"], "--jobs N"),
        (["seed==1"], "not key=value"),
        (["sede=1,2"], "sede"),
        (["hydra.job.chdir=true"], "paths are relative to it"),
        (["hydra.sweep.dir=/dev/null/jobs"], "/dev/null is no folder"),
        (["--jobs", "0"], "--jobs=0"),
        (["hydra/sweeper=optuna", "--dry-run"], "leave --dry-run out"),
        (["hydra/sweeper=optuna", "hardware.detach=true"], "the sweeper optuna chooses jobs by the results"),
        (["--out", "/dev/null/x"], "--out"),
        (["seed=0,1", "hardware.workers=1000", "--jobs", "2"], "2 cases with 1000 ranks each need 2000 cores"),
    ],
)
def test_what_cannot_be_run_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert multirun(*arguments) == 2
    found = capsys.readouterr().err
    assert said in found, found
    assert not list(place.rglob("job.json"))


@pytest.mark.parametrize("option", [["--jobs", "2"], ["--accept-foreign"], ["--out", "here"]])
def test_options_of_several_runs_need_several(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert run_command(["run", *option]) == 2 and f"{option[0]}='without -m'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_multirun_skips_what_has_finished(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, jobs = [*PRETENDED, "hydra.sweep.dir=runs/jobs"], place / "runs" / "jobs"
    assert multirun(*words, "seed=0,1", "--dry-run") == 0
    assert not list(place.iterdir()), "not even what Hydra notes"
    assert multirun(*words, "seed=0,1") == 0
    before = (jobs / "0" / "result.json").read_bytes()
    capsys.readouterr()
    assert multirun(*words, "seed=0,1,2") == 0
    said = capsys.readouterr()
    assert "3 runs, 2 finished before" in said.out and "2 finished before, 1 finished" in said.out
    assert (jobs / "0" / "result.json").read_bytes() == before and statuses(jobs) == ["finished"] * 3
    (place / "mine.yaml").write_text(f"fixed: {json.dumps(PRETENDED)}\naxes: {{seed: [0, 1]}}\n")
    assert run_command(["sweep", "mine.yaml", "--dry-run"]) == 0
    assert "2 runs, 2 finished before" in capsys.readouterr().out, "a sweep takes runs of a multirun"
    assert multirun(*PRETENDED, "seed=0,1", "--rerun", "hydra.sweep.dir=again") == 0
    assert statuses(place / "again") == ["finished"] * 2


@pytest.mark.slow
def test_jobs_that_are_wrong_or_whose_folder_is_taken_have_failed_and_the_others_go_on_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six jobs: a seed twice, a width that is wrong, and a folder that is taken."""
    write_job(place / "jobs" / "0")
    write_result(place / "jobs" / "0")
    before = (place / "jobs" / "0" / "result.json").read_bytes()
    assert multirun(*PRETENDED, "hydra.sweep.dir=jobs", "seed=7,8,8", "model.hidden=8,0") == 1
    said = capsys.readouterr()
    assert said.err.count("a run never writes into a folder that exists") == 1 and "Traceback" not in said.err
    assert (place / "jobs" / "0" / "result.json").read_bytes() == before
    assert [case["status"] for case in cases(place)] == [
        "failed",
        "failed",
        "finished",
        "failed",
        "finished before",
        "failed",
    ]
    assert "model.hidden=0" in cases(place)[1]["reason"] and "model.hidden=0" in said.err
    assert sorted(path.parent.name for path in (place / "jobs").glob("*/job.json")) == ["0", "2"]
    assert not (place / "jobs" / "1").exists(), "nothing is left of a job that is wrong"
    assert json.loads((place / "jobs" / "2" / "result.json").read_text())["status"] == "finished"


def test_a_dry_run_of_invalid_jobs_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them are wrong, or one."""
    for values, wrong in (("[5,5],[3,3]", 2), ("[5,5,5],[3,3]", 1)):
        assert multirun("dataset=digits", f"sampler.fanouts={values}", "model.layers=3", "--dry-run") == 2
        assert capsys.readouterr().err.count("sampler.fanouts=") >= wrong


@pytest.mark.slow
def test_names_may_have_any_characters(place: Path) -> None:
    words = [
        *PRETENDED,
        "seed=0,1",
        "hydra.sweep.dir='my jobs, all'",
        "hydra.sweep.subdir=${hydra.job.override_dirname}",
    ]
    assert multirun(*words, "name='a,b=c'") == 0
    assert len(list((place / "my jobs, all").glob("*/result.json"))) == 2
    assert (place / "runs" / "sweeps" / "a,b=c.json").exists() and (place / "reports" / "a,b=c").is_dir()
    assert multirun(*PRETENDED, "name=x,y", "--dry-run") == 0, "named by its words, then"
    assert multirun(*words, "name='a/b'") == 1 and (place / "runs" / "sweeps" / "a_b.json").exists(), "in words"


@pytest.mark.slow
def test_jobs_run_side_by_side(place: Path) -> None:
    assert multirun(*PRETENDED, "seed=0,1", "hydra.sweep.dir=jobs", "--jobs", "2") == 0
    places = [
        json.loads(path.read_text())["provenance"]["hardware"]["side_by_side"] for path in place.glob("jobs/*/job.json")
    ]
    assert len(places) == 2 and not set(places[0]["cores"]) & set(places[1]["cores"])


@pytest.mark.slow
def test_an_interrupted_job_is_the_last_and_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*PRETENDED, "seed=0,1", "hydra.sweep.dir=jobs", "hydra.sweeper.max_batch_size=1"]
    interrupted = Outcome(130, "interrupted", "interrupted by SIGINT", "interrupted by SIGINT", "interrupted")
    with monkeypatch.context() as patch:
        patch.setattr(LocalLauncher, "launch", lambda *_: interrupted)
        assert multirun(*words) == 130
    assert [case["status"] for case in cases(place)] == ["interrupted"]
    assert multirun(*words) == 0
    assert statuses(place / "jobs") == ["finished"] * 2, "in their own directories"


@pytest.mark.slow  # of a sweep, whose queue this is: test_full_disk.py
def test_a_disk_that_refuses_is_named_and_the_next_job_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gnnexp.cli.running import execute

    calls = iter([OSError(errno.ENOSPC, "No space left on device", "somewhere")])
    write_job = execute.write_job

    def full_once(*arguments: Any) -> None:
        if (error := next(calls, None)) is not None:
            raise error
        write_job(*arguments)

    monkeypatch.setattr(execute, "write_job", full_once)
    assert multirun(*PRETENDED, "hydra.sweep.dir=jobs", "seed=0,1") == 1
    said = capsys.readouterr()
    assert "the disk is full" in said.err and "Traceback" not in said.err
    assert statuses(place / "jobs") == ["failed", "finished"]


class Searching(Sweeper):
    """Asks for two jobs, then for one that depends on their values, as a plugin for searching would."""

    values: tuple[list[float | None], ...] = ()

    def __init__(self, max_batch_size: int | None, params: Any) -> None:
        pass

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.folder = Path(str(config.hydra.sweep.dir))
        self.launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function
        )

    def sweep(self, arguments: list[str]) -> None:
        fixed = [line for line in arguments if not line.startswith("seed")]
        first = self._ask([[*fixed, "seed=0"], [*fixed, "optimizer.lr=1e300", "seed=1"]], 0)
        Searching.values = (first, self._ask([[*fixed, f"seed={2 if first[0] else 3}"]], 2))
        (self.folder / "optimization_results.yaml").write_text("found", encoding="utf-8")  # as Optuna's sweeper does

    def _ask(self, jobs: Sequence[Sequence[str]], first: int) -> list[float | None]:
        return [job.return_value for job in self.launcher.launch(jobs, initial_job_idx=first)]


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], pytest.param(["--jobs", "2"], marks=pytest.mark.slow)])
def test_a_sweeper_searches_by_what_jobs_have_reached(place: Path, more: list[str]) -> None:
    Plugins.instance().class_name_to_class[SWEEPER] = Searching
    words = [*SMALL, "hardware.threads=1", "seed=interval(0, 5)", *more]
    assert multirun(*words, "hydra.sweep.dir=runs/jobs") == 1
    (good, bad), (last,) = Searching.values
    assert good and bad is None and last, "a failed job has no value, which plugins count as a failure"
    assert [case["status"] for case in cases(place)] == ["finished", "failed", "finished"]
    assert multirun(*words, "hydra.sweep.dir=runs/again", "name=again") == 1
    states = json.loads((place / "runs" / "sweeps" / "again.json").read_text())["cases"]
    assert [case["status"] for case in states] == ["finished before", "failed", "finished before"]
    assert Searching.values[0][0] == good, "the value of a run that had finished before"


class Directed(Searching):
    """Has the option `direction`, as Optuna's sweeper."""

    def __init__(self, max_batch_size: int | None, params: Any, direction: str) -> None:
        pass


def test_a_search_for_the_worst_metric_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Plugins.instance().class_name_to_class[SWEEPER] = Directed
    assert multirun(*SMALL, "seed=interval(0, 5)", "+hydra.sweeper.direction=minimize") == 2
    assert "hydra.sweeper.direction=maximize" in capsys.readouterr().err
    assert not list(place.rglob("job.json"))


@pytest.mark.slow
def test_ctrl_c_reaches_jobs_side_by_side(place: Path) -> None:
    """An interrupted `--jobs 2`: the jobs write checkpoints, and the same command goes on with them."""
    import subprocess
    import sys
    import time

    words = [
        *SMALL[:4],
        "train.epochs=60",
        "train.eval_every=0",
        "hardware.threads=1",
        "seed=0,1",
        "hydra.sweep.dir=jobs",
        "--jobs",
        "2",
    ]
    command = [sys.executable, "-m", "gnnexp", "run", "-m", *words]
    going = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while len(list(place.glob("jobs/*/epochs.jsonl"))) < 2:
        assert time.monotonic() < end and going.poll() is None, going.communicate()[0]
        time.sleep(0.02)
    going.send_signal(signal.SIGINT)
    said = going.communicate(timeout=120)[0]
    assert going.returncode == 130 or "2 finished" in said, said
    assert "Traceback" not in said
    assert multirun(*words) == 0
    assert statuses(place / "jobs") == ["finished"] * 2
    assert all(len((place / "jobs" / n / "epochs.jsonl").read_text().splitlines()) == 60 for n in "01")
