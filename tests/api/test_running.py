"""`gnnexp.run`: the run of the command, with errors for exit codes, from any place where Python runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gnnexp
from gnnexp.api.running import raise_failure
from gnnexp.launchers.base import Outcome
from gnnexp.record.records import read_epochs

QUICK = (
    "dataset=digits",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[3]",
    "train.epochs=2",
    "hardware.device=cpu",
    "tracker=none",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


def test_a_run_is_quiet_and_has_the_record(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = gnnexp.run("system=gsplit", *QUICK, "hardware.workers=2", "train=default", "train.epochs=2")
    assert capfd.readouterr() == ("", "")
    assert run.status == "finished" and run.reason == "" and run.run_dir.is_relative_to(place / "runs")
    assert run.config["system"] == "gsplit" and run.config["train"]["epochs"] == 2
    result = json.loads((run.run_dir / "result.json").read_text())
    assert list(run.epochs.index) == [0, 1] and run.epochs.index.name == "epoch"
    for line in result["epochs"]:
        assert run.epochs.loc[line["epoch"]].dropna().to_dict() == line["metrics"]
    assert run.best is not None and run.best.epoch == result["summary"]["best_epoch"] == run.metrics["best_epoch"]
    assert (run.metrics["val"], run.metrics["test"]) == (result["summary"]["acc/val"], result["summary"]["acc/test"])
    found = gnnexp.load(run).evaluate()
    assert {split: found[f"acc/{split}"] for split in ("val", "test")} == {
        split: run.metrics[split] for split in ("val", "test")
    }
    (row,) = gnnexp.runs("system = 'gsplit'").to_dict("records")
    assert Path(row["run_dir"]).absolute() == run.run_dir
    assert {name: row[name] for name in run.metrics} == run.metrics


def test_progress_is_printed_if_wanted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gnnexp.run(*QUICK, progress=True)
    said = capsys.readouterr().out
    assert "run directory" in said and said.count("epoch ") >= 2


def test_all_problems_are_raised_and_nothing_is_made(place: Path) -> None:
    with pytest.raises(gnnexp.ConfigError) as error:
        gnnexp.run("system=gsplitt", "train.epochs=-1")
    assert {problem.key for problem in error.value.problems} >= {"system", "train.epochs"}
    with pytest.raises(gnnexp.ConfigError, match="each must be a text key=value"):
        gnnexp.run(["dataset=digits"])  # type: ignore[arg-type]
    assert list(place.iterdir()) == []


def test_a_run_that_fails_raises_its_reason(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(gnnexp.RunError) as error:
        gnnexp.run(*QUICK, "optimizer.lr=1e38", "hydra.run.dir=run", "optimizer=sgd")
    assert "loss is nan" in str(error.value) or "loss is inf" in str(error.value)
    assert f"logs: {place / 'run' / 'logs'}" in str(error.value)
    assert capfd.readouterr() == ("", "")
    run = gnnexp.Run(Path("run"))
    assert run.status == "failed" and "loss is" in run.reason


@pytest.mark.slow
def test_in_a_thread_signals_are_left_to_the_main_thread(place: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)]
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(gnnexp.run, *QUICK, f"hydra.run.dir=run{number}") for number in range(2)]
        assert [run.result(timeout=240).status for run in runs] == ["finished"] * 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)] == before


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------
KERNEL = """
import sys
import gnnexp
try:
    gnnexp.run(*sys.argv[1:])
except KeyboardInterrupt:
    run = gnnexp.Run("run")
    print("interrupted", run.status)
"""


@pytest.mark.interpreter
@pytest.mark.slow
def test_ctrl_c_ends_the_ranks_and_raises(place: Path) -> None:
    """In a process whose `__main__` has no file and no guard."""
    process = subprocess.Popen(
        [sys.executable, "-c", KERNEL, *QUICK, "train.epochs=100000", "hydra.run.dir=run"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 200
    while not (place / "run" / "epochs.jsonl").exists():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (out, process.returncode) == ("interrupted failed\n", 0), err
    assert read_epochs(place / "run") and (place / "run" / "checkpoints").is_dir()


def outcome(message: str = "interrupted by SIGINT", asked: signal.Signals | None = None) -> Outcome:
    return Outcome(130, "interrupted", message=message, asked=asked)


def test_the_callers_own_handler_gets_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:
        with pytest.raises(gnnexp.RunError, match="gnnexp resume"):
            raise_failure(tmp_path, outcome(asked=signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [signal.SIGTERM]
    with pytest.raises(KeyboardInterrupt):
        raise_failure(tmp_path, outcome(asked=signal.SIGINT))


def test_a_cancelled_run_is_an_error(tmp_path: Path) -> None:
    """`gnnexp cancel`, or a run in a thread: nobody asked this process."""
    with pytest.raises(gnnexp.RunError, match=rf"by SIGTERM\nlogs: .*\ncontinue with: gnnexp resume {tmp_path}"):
        raise_failure(tmp_path, outcome("interrupted by SIGTERM"))


# --- a paradigm of the user's own ------------------------------------------------------------------------------------
MINE = """
from dataclasses import dataclass
from gnnexp.models.layer import Degrees
from gnnexp.paradigms.data_parallel import DataParallel, DataParallelTrainer

class Other(DataParallelTrainer):
    def evaluation_model(self):
        job, other = self.job, self.job.experiment.model.make()
        other.setup(job.graph.num_features, job.graph.num_classes, Degrees.of(job.graph), seed=9, dtype=job.dtype,
                    device=job.device)
        return other

@dataclass(frozen=True)
class Same(DataParallel):
    pass

@dataclass(frozen=True)
class Mine(DataParallel):
    def trainer(self, job):
        return Other(job, self.assign)
"""


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_paradigm_of_the_users_own_is_checked_by_its_metrics(place: Path) -> None:
    """A module in the current folder is found by the ranks. A paradigm that evaluates another model is noticed."""
    (place / "mine.py").write_text(MINE)
    (place / "conf" / "paradigm").mkdir(parents=True)
    for name in ("Same", "Mine"):
        (place / "conf" / "paradigm" / f"{name.lower()}.yaml").write_text(f"_target_: mine.{name}\nassign: even\n")
    code = (
        f"import gnnexp\nfor name in ('same', 'mine'):\n    run = gnnexp.run('paradigm=' + name, *{QUICK!r}, "
        "config_dir='conf')\n    print(gnnexp.load(run).evaluate()['acc/test'] == run.metrics['test'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout == "True\n", done.stderr
    assert "its paradigm evaluates another model than the one that it trains" in done.stderr


# --- the package -----------------------------------------------------------------------------------------------------
@pytest.mark.interpreter
def test_importing_gnnexp_imports_nothing_else() -> None:
    code = (
        "import sys, gnnexp; print(sorted(name for name in sys.modules if name.startswith('gnnexp.') or "
        "name in ('torch', 'numpy', 'pandas', 'mlflow', 'hydra', 'duckdb')), 'runs' in dir(gnnexp))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"


def test_every_public_name_is_there() -> None:
    assert all(getattr(gnnexp, name) is not None for name in gnnexp.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gnnexp.nothing  # noqa: B018
    assert set(gnnexp._PLACES) == set(gnnexp.__all__)
