"""A case that cannot be prepared is a result, whatever went wrong: the other cases of the sweep run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.experiment.experiment import Experiment

SWEEP = """
fixed: [dataset=digits, tracker=none, model.hidden=8, model.layers=1, "sampler.fanouts=[3]", paradigm=split_parallel,
        hardware.workers=2, hardware.launcher.worker_module=pretending_worker]
cases: [{overrides: [partitioner._target_=mypartitioner.Mine]}, {overrides: [partitioner=random]}]
report: {figures: []}
"""
PARTITIONER = """from gnnexp.partitioners.random import RandomPartitioner


class Mine(RandomPartitioner):
    def assign(self, graph, num_parts):
        raise """


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))
    (tmp_path / "mine.yaml").write_text(SWEEP)
    return tmp_path


# What a partitioner raises: what the record calls it, and what it says.
ERRORS = {
    "MemoryError('tried to allocate 5000 bytes')": ("out of memory", "5,000 bytes needed"),
    "KeyError('mine')": ("error", "KeyError: 'mine'"),
    "FileNotFoundError(2, 'No such file or directory', 'mine.npy')": ("error", "mine.npy"),
}


@pytest.mark.slow
def test_an_error_while_a_case_is_prepared_ends_no_sweep(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three cases every one fails in its own way, and the fourth one runs."""
    (workplace / "mypartitioner.py").write_text(
        "\n\n".join(f"{PARTITIONER}{error}\n".replace("Mine", f"Mine{place}") for place, error in enumerate(ERRORS))
    )
    wrong = ", ".join(f"{{overrides: [partitioner._target_=mypartitioner.Mine{place}]}}" for place in range(3))
    (workplace / "mine.yaml").write_text(SWEEP.replace("{overrides: [partitioner._target_=mypartitioner.Mine]}", wrong))
    assert run_command(["sweep", "mine.yaml"]) == 1
    runs = [Path(case["run_dir"]) for case in json.loads(Path("runs/sweeps/mine.json").read_text())["cases"]]
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    assert [(result["status"], result.get("kind")) for result in results] == [
        *(("failed", kind) for kind, _ in ERRORS.values()),
        ("finished", None),
    ]
    assert all(said in result["reason"] for result, (_, said) in zip(results, ERRORS.values(), strict=False))
    assert capsys.readouterr().err.count("mypartitioner.py") >= len(ERRORS)
    assert [run_command(["status", str(run)]) for run in runs] == [1, 1, 1, 0]
    sys.modules.pop("mypartitioner")


def test_code_that_is_broken_while_a_case_is_prepared_ends_no_sweep(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An editor has saved half of a line."""
    from gnnexp.cli.running import prepare

    file, prepare_graph = workplace / "mypartitioner.py", prepare.prepare_graph
    file.write_text(PARTITIONER.partition("        raise")[0] + "        return super().assign(graph, num_parts)\n")

    def slowly(*arguments: object) -> object:
        if "(:" not in file.read_text():
            file.write_text("def half(:\n")
        return prepare_graph(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "prepare_graph", slowly)
    assert run_command(["sweep", "mine.yaml"]) == 1
    cases = json.loads((workplace / "runs" / "sweeps" / "mine.json").read_text())["cases"]
    assert [case["status"] for case in cases] == ["failed", "finished"] and "Traceback" not in capsys.readouterr().err
    sys.modules.pop("mypartitioner")


def test_a_sweep_removes_what_a_killed_one_left_half_written(workplace: Path) -> None:
    """A sweep that is killed while it writes its state leaves a temporary file of its process; found by torture."""
    states = workplace / "runs" / "sweeps"
    states.mkdir(parents=True)
    left, others = states / ".mine.json.4194305.tmp", states / ".mine2.json.4194305.tmp"
    left.write_text("half")
    others.write_text("of another sweep, which may be writing")
    (workplace / "mine.yaml").write_text(SWEEP.replace("{overrides: [partitioner._target_=mypartitioner.Mine]}, ", ""))
    assert run_command(["sweep", "mine.yaml"]) == 0
    assert not left.exists() and others.exists()
    assert json.loads((states / "mine.json").read_text())["cases"][0]["status"] == "finished"


def test_a_frozen_sweep_keeps_no_other_from_writing_its_state(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock; then nothing is removed, because it may be writing."""
    from gnnexp.cli.sweeping import queue
    from gnnexp.files.disk import file_lock

    monkeypatch.setattr(queue, "_PATIENCE_S", 0.2)
    folder = workplace / "runs" / "sweeps"
    (folder / ".cases").mkdir(parents=True)
    left = folder / ".mine.json.4194305.tmp"
    left.write_text("half")
    sweep = Sweep("mine", "of this test", ())
    with file_lock(folder / ".cases" / "mine.states", 1.0):
        queue.save_states(sweep, [])
    assert json.loads((folder / "mine.json").read_text())["cases"] == [] and left.exists()
    queue.save_states(sweep, [])
    assert not left.exists()


@pytest.mark.parametrize("more", [["--dry-run"], []], ids=["dry run", "real"])
def test_a_case_builds_its_experiment_once(workplace: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    """What is checked is what runs: nothing between the plan of a sweep and its report builds a case's parts again."""
    builds: list[int] = []
    init = Experiment.__init__

    def counting(self: Experiment, **parts: Any) -> None:
        builds.append(parts["seed"])
        init(self, **parts)

    monkeypatch.setattr(Experiment, "__init__", counting)
    (workplace / "mine.yaml").write_text(SWEEP.replace("partitioner._target_=mypartitioner.Mine", "seed=1"))
    assert run_command(["sweep", "mine.yaml", *more]) == 0
    assert sorted(builds) == [0, 1]
    assert len([*workplace.glob("runs/mine/*/result.json")]) == (0 if more else 2)
