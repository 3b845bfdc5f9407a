"""Several sweeps that have a case in common make it once together, whichever way they run their cases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import place, start
from unkillable import unkillable
from warm_forks import WarmPopen

from gnnexp.cli.commands.report import choose
from gnnexp.cli.commands.sweep import check_all
from gnnexp.cli.console import make_console
from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.case import CaseState, QueuedCase, ended
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.cli.sweeping.known_runs import ReuseRules, all_there, planned
from gnnexp.cli.sweeping.queue import OneByOne, Queue, look_again, turn_of
from gnnexp.cli.sweeping.side_by_side import Slot, make_slots
from gnnexp.cli.sweeping.submitted import ArrayExecutor
from gnnexp.files.pulse import Pulse
from gnnexp.launchers.base import Launchers, Outcome
from gnnexp.launchers.queue.answers import Alive
from gnnexp.launchers.queue.slurm_jobs import Submission, read_submission, write_submission
from gnnexp.launchers.slurm import SlurmLauncher
from gnnexp.record.attempts import RANKS, note

__all__ = ["place", "unkillable"]

CASES = 2
# For the process of a case: Ctrl-C at a moment of its start.
INTERRUPTED = """
import os, sys
if any(word.endswith("side_by_side") for word in sys.orig_argv):
    import importlib.abc, signal
    moment = os.environ["INTERRUPTED_AT"]

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "gnnexp.cli.running.execute":
                if moment.startswith("import"):
                    signal.raise_signal(signal.SIGINT)
                sys.settrace(traced)

    def traced(frame, event, argument):
        if frame.f_code.co_name == "create_run":
            if moment == "create_run":
                signal.raise_signal(signal.SIGINT)
            return lambda frame, event, argument: signal.raise_signal(signal.SIGINT) if event == "return" else None

    sys.meta_path.insert(0, Finder())
"""
SWEEP = f"""
fixed: [tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {{seed: {list(range(CASES))}}}
report: {{figures: []}}
"""


@pytest.fixture
def sweeps(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sweeps with the same cases, on ranks that only pretend."""
    here = str(Path(__file__).parent / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    for name in ("one", "two"):
        (place / f"{name}.yaml").write_text(SWEEP)
    return place


def seeds(place: Path) -> Counter[int]:
    """How often each case was run."""
    results = [json.loads(path.read_text()) for path in place.glob("runs/*/*/result.json")]
    assert {result["status"] for result in results} == {"finished"}
    return Counter(result["config"]["seed"] for result in results)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("second", "more"),
    [
        pytest.param("one", [], id="one name"),
        pytest.param("two", [], id="two names", marks=pytest.mark.slow),
        pytest.param("one", ["--jobs", "2"], id="side by side", marks=pytest.mark.slow),
    ],
)
def test_cases_of_sweeps_that_run_at_once_are_run_once(sweeps: Path, second: str, more: list[str]) -> None:
    going = [start("sweep", f"{name}.yaml", *more) for name in ("one", second)]
    said = [process.communicate(timeout=250)[0] for process in going]
    assert seeds(sweeps) == dict.fromkeys(range(CASES), 1), said
    assert len(list(sweeps.glob("runs/*/*/job.json"))) == CASES, said
    assert 0 in [process.returncode for process in going], said
    assert not any("Traceback" in text for text in said)
    assert not list((sweeps / "runs" / "sweeps").rglob("*.lock"))
    assert run_command(["sweep", "one.yaml", *more]) == 0 and sum(seeds(sweeps).values()) == CASES, "nothing is left"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sweeps_of_one_name_with_other_cases_keep_to_their_own(sweeps: Path) -> None:
    """Side by side, each call has its cases in a folder of its own."""
    going = [start("sweep", "one.yaml", f"seed={seed}", "--jobs", "2") for seed in (0, 5)]
    said = [process.communicate(timeout=250)[0] for process in going]
    assert [process.returncode for process in going] == [0, 0], said
    assert seeds(sweeps) == {0: 1, 5: 1}, said


def test_a_case_whose_ranks_executed_other_code_has_not_finished(sweeps: Path) -> None:
    assert run_command(["sweep", "one.yaml", "seed=0"]) == 0
    (run,) = map(Path, all_there())
    result = json.loads((run / "result.json").read_text())
    case, done = case_of("one.yaml", "seed=0"), Outcome(0, "finished")
    assert ended(case, done, make_console()).status == "finished"
    result["provenance"]["run_key"] = ""  # `as_executed`
    (run / "result.json").write_text(json.dumps(result))
    now = ended(case, done, make_console())
    assert now.status == "failed" and "other code than the sweep planned" in now.reason
    result["provenance"]["dataset_key"] = "of other data"
    (run / "result.json").write_text(json.dumps(result))
    now = ended(case, done, make_console())
    assert now.status == "failed" and "its data changed since the sweep planned it" in now.reason


def test_a_begun_run_that_executed_other_code_is_left_alone(sweeps: Path) -> None:
    """Code was edited before its ranks began, and is back: nobody can go on with that run as the case."""
    assert run_command(["sweep", "one.yaml", "seed=0"]) == 0
    (run,) = map(Path, all_there())
    (run / "result.json").unlink()
    assert case_of("one.yaml", "seed=0").state.run_dir == str(run)
    note(run, RANKS, nodes=[], code={"own": {"mine": "1"}}, from_start=True)
    assert case_of("one.yaml", "seed=0").state.run_dir == ""
    assert run_command(["sweep", "one.yaml", "seed=0"]) == 0 and len(all_there()) == 2


@pytest.mark.slow
def test_a_rerun_runs_again_what_was_there_and_not_what_came_since(sweeps: Path) -> None:
    assert run_command(["sweep", "one.yaml", "seed=1"]) == run_command(["sweep", "one.yaml", "seed=0"]) == 0
    before = {run: (Path(run) / "result.json").read_bytes() for run in all_there()}
    reuse = ReuseRules(passed_over=all_there())
    case = case_of("one.yaml", "seed=0", reuse=reuse)
    assert case.state.status == "waiting" and case.state.run_dir == ""
    assert look_again(case, ReuseRules()).status == "finished before"
    assert run_command(["sweep", "one.yaml", "seed=0", "--rerun"]) == 0
    (again,) = all_there() - set(before)
    assert {run: (Path(run) / "result.json").read_bytes() for run in before} == before, "cases of other calls too"
    with turn_of(case, reuse) as now:
        assert (now.status, now.run_dir) == ("finished before", again), "another rerun has made it since"


def test_runs_on_another_disk_are_found(sweeps: Path) -> None:
    (sweeps / "disk").mkdir()
    (sweeps / "runs").mkdir()
    (sweeps / "runs" / "one").symlink_to("../disk")
    for _ in range(2):
        assert run_command(["sweep", "one.yaml"]) == 0 and len(list((sweeps / "disk").iterdir())) == CASES


def case_of(*arguments: str, reuse: ReuseRules | None = None) -> QueuedCase:
    sweep = load_sweep(arguments[0], arguments[1:])
    (checked,) = check_all(sweep, None)
    (case,) = planned([QueuedCase(sweep.name, "gnnexp sweep", checked, CaseState("run"))], reuse or ReuseRules())
    return case


def queue_of(case: QueuedCase) -> Queue:
    queue = Queue(load_sweep("one.yaml"), ReuseRules(), make_console())
    queue.add(case)
    return queue


def test_a_case_has_one_turn_at_a_time(sweeps: Path) -> None:
    case = case_of("one.yaml", "seed=0")
    with turn_of(case, ReuseRules()) as mine, turn_of(case, ReuseRules()) as other:
        assert mine.status == "waiting"
        assert (other.status, other.reason) == ("running elsewhere", "another sweep is running this case")
    with turn_of(case, ReuseRules()) as now:
        assert now.status == "waiting", "it was not run"
    assert run_command(["sweep", "two.yaml", "seed=0"]) == 0
    (run,) = all_there()
    queue = queue_of(replace(case, state=other))
    queue.work(OneByOne(Launchers(), queue.console))
    assert queue.states == [replace(case.state, status="finished before", run_dir=run)], "looked at again at the end"


def test_a_begun_run_that_another_sweep_has_finished_stays_as_it_is(sweeps: Path) -> None:
    assert run_command(["sweep", "one.yaml", "seed=0"]) == 0
    (run,) = map(Path, all_there())
    result = (run / "result.json").read_text()
    (run / "result.json").unlink()
    case = case_of("one.yaml", "seed=0")
    assert (case.state.status, case.state.run_dir) == ("waiting", str(run)), "to go on with"
    (run / "result.json").write_text(result)
    with turn_of(case, ReuseRules()) as now:
        assert now.status == "finished before"


def test_a_case_is_submitted_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sweep looks while the first one submits, and again when the job is in the queue."""
    (place / "one.yaml").write_text("fixed: [tracker=none, hardware=slurm_cpu, hardware.detach=true, seed=3]\n")
    monkeypatch.setattr(SlurmLauncher, "check_here", lambda *_: [])
    monkeypatch.setattr(
        "gnnexp.cli.commands.resume.job_state_of",
        lambda run_dir, *_: read_submission(run_dir) and Alive("7", "RUNNING"),
    )
    case = case_of("one.yaml")
    submitted: list[Path] = []
    seen: list[CaseState] = []

    def sweeping() -> list[CaseState]:
        queue = queue_of(case)
        queue.work(ArrayExecutor(Launchers(), queue.console))
        return queue.states

    def submit(self: SlurmLauncher, run_dirs: list[Path], config: Any) -> list[str]:
        submitted.extend(run_dirs)
        seen.extend(sweeping())
        for run_dir in run_dirs:
            write_submission(run_dir, Submission("7", "token"))
        return ["7"] * len(run_dirs)

    monkeypatch.setattr(SlurmLauncher, "submit", submit)
    (first,) = sweeping()
    (second,) = sweeping()
    assert first.status == "submitted" and [one.status for one in (*seen, second)] == ["running elsewhere"] * 2
    assert submitted == [Path(first.run_dir)] and len(all_there()) == 1
    assert second.run_dir == first.run_dir


@pytest.mark.parametrize(
    "moment",
    [
        "create_run",
        pytest.param("import gnnexp.cli.running.execute", marks=pytest.mark.slow),
        pytest.param("after create_run", marks=pytest.mark.slow),
    ],
)
@pytest.mark.interpreter
@pytest.mark.slow
def test_a_case_that_is_interrupted_before_its_ranks_start_has_not_failed(
    sweeps: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """By Ctrl-C of `--jobs`; nothing half made is left, and the next call makes the case once."""
    interrupting = sweeps / "interrupting"  # not the current folder, where a process may look without being asked
    interrupting.mkdir()
    (interrupting / "sitecustomize.py").write_text(INTERRUPTED)
    before = os.environ["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(interrupting), before]))
    monkeypatch.setenv("INTERRUPTED_AT", moment)
    assert run_command(["sweep", "one.yaml", "seed=0", "--jobs", "2"]) == 130
    (case,) = json.loads((sweeps / "runs" / "sweeps" / "one.json").read_text())["cases"]
    assert case["status"] == "interrupted", case
    made = [path.name for path in sweeps.glob("runs/one/*")]
    assert len(made) == (moment == "after create_run") and not list(sweeps.glob("runs/one/.*"))
    monkeypatch.setenv("PYTHONPATH", before)
    monkeypatch.setattr(WarmPopen, "wanted", True)
    assert run_command(["sweep", "one.yaml", "seed=0", "--jobs", "2"]) == 0
    assert seeds(sweeps) == {0: 1} and set(made) <= {path.name for path in sweeps.glob("runs/one/*")}


@pytest.fixture
def frozen_case(sweeps: Path, monkeypatch: pytest.MonkeyPatch) -> CaseState:
    """How a case ends whose process, one of those that `--jobs` starts, is frozen."""
    from gnnexp.cli.sweeping import side_by_side

    case = case_of("one.yaml", "seed=0", "hardware.timeout_s=1.0")

    def start_frozen(case: QueuedCase, slot: Slot, file: Path) -> side_by_side._Child:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        process.send_signal(signal.SIGSTOP)
        return side_by_side._Child(case, slot, file, process, Pulse(process.pid))

    monkeypatch.setattr(side_by_side, "_started", start_frozen)
    queue = queue_of(case)
    queue.work(side_by_side.SideBySide("one", make_slots(2, [case.experiment])))
    (saved,) = json.loads((sweeps / "runs" / "sweeps" / "one.json").read_text())["cases"]
    assert saved["status"] == queue.states[0].status
    return queue.states[0]


@pytest.mark.interpreter
def test_a_frozen_process_of_a_case_ends_with_its_time_limit(frozen_case: CaseState) -> None:
    """A sweep waits for it no longer than for a rank."""
    assert frozen_case.status == "failed" and "was frozen and then killed" in frozen_case.reason


@pytest.mark.interpreter
def test_a_process_of_a_case_that_not_even_sigkill_ends_is_left(
    unkillable: list[subprocess.Popen[Any]], frozen_case: CaseState
) -> None:
    assert frozen_case.status == "failed" and f"({unkillable[0].pid}) is frozen" in frozen_case.reason


def test_cases_that_are_the_same_run_are_one_run_of_the_report(sweeps: Path) -> None:
    """How often checkpoints are written makes no other run: counted three times it would have no spread."""
    (sweeps / "one.yaml").write_text(SWEEP.replace("seed: [0, 1]", "train.checkpoint_every: [1, 2, 3]"))
    assert run_command(["sweep", "one.yaml"]) == 0
    (run,) = sweeps.glob("runs/one/*")
    for words in (["one"], ["runs/one", str(run)], ["balance", "one", str(run)]):
        assert len(choose(words).runs) == 1
    assert "±" not in (sweeps / "reports" / "one" / "table.md").read_text().splitlines()[2]
