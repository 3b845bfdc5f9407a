"""The contract of the executors: the same list of cases ends in the same states and results, whoever runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping import submitted
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.slurm import SlurmLauncher
from gnnexp.record.records import read_epochs

SMALL = [
    "dataset=digits",
    "tracker=none",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[4]",
    "train.epochs=2",
    "hardware.threads=1",
]
# Two that finish, one that diverges, one that is another one, and one whose data is not there when its turn comes.
CASES = [
    ["seed=0"],
    ["seed=1", "optimizer.lr=1e300"],
    ["seed=2"],
    ["seed=0", "train.checkpoint_every=2"],
    ["partitioner._target_=lost.Partitioner", "paradigm=split_parallel"],
]
LOST = """from gnnexp.partitioners.random import RandomPartitioner


class Partitioner(RandomPartitioner):
    def assign(self, graph, num_parts):
        raise KeyError("lost")
"""
EXECUTORS = {
    "one by one": [],
    "side by side": ["--jobs", "2"],
    "submitted": ["hardware.launcher={_target_: gnnexp.launchers.slurm.SlurmLauncher}"],
}
# Seed by seed.
EXPECTED = [("finished", ""), ("finished", ""), ("failed", "diverged"), ("finished", ""), ("failed", "error")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    (tmp_path / "lost.py").write_text(LOST)
    (tmp_path / "list.yaml").write_text(json.dumps({"fixed": SMALL, "cases": [{"overrides": one} for one in CASES]}))
    return tmp_path


def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that runs each job at once, on this machine; `following` tells how it ended."""
    outcomes: dict[str, Outcome] = {}

    def submit(self: SlurmLauncher, run_dirs: Sequence[Path], hardware: Any) -> list[str]:
        found = [LocalLauncher() for _ in run_dirs]
        ids = [f"7_{number}" for number in range(len(run_dirs))]
        for job_id, launcher, run_dir in zip(ids, found, run_dirs, strict=True):
            outcomes[job_id] = launcher.launch(run_dir, hardware)
            launcher.close()
        return ids

    monkeypatch.setattr(SlurmLauncher, "check_here", lambda *_: [])
    monkeypatch.setattr(SlurmLauncher, "submit", submit)
    monkeypatch.setattr(submitted, "following", lambda _, job_id, *__: iter([None, outcomes[job_id]]))
    monkeypatch.setattr(submitted, "_POLL_S", 0.01)


def results(place: Path) -> list[Any]:
    """What every case has left, in the sweep's order: how it ended, and its losses."""
    found = []
    for case in json.loads((place / "runs" / "sweeps" / "list.json").read_text())["cases"]:
        result = json.loads((Path(case["run_dir"]) / "result.json").read_text())
        assert result["status"] == case["status"].removesuffix(" before")
        found.append(
            (
                result["status"],
                result.get("kind") or "",
                case["key"],
                [line["losses"] for line in read_epochs(Path(case["run_dir"]))],
            )
        )
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_executor_ends_in_the_same_states_and_results(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster(monkeypatch)
    found: dict[str, list[Any]] = {}
    for name, words in EXECUTORS.items():
        assert run_command(["sweep", "list.yaml", *words]) == 1
        assert len(list(place.glob("runs/list/*/job.json"))) == 4 * (len(found) + 1), "two cases are one run"
        found[name] = results(place)
        table = (place / "reports" / "list" / "table.md").read_text()
        assert "diverged" in table and ("Cases ran 2 side by side, each on " in table) == (name == "side by side")
    assert {name: [one[:2] for one in ended] for name, ended in found.items()} == dict.fromkeys(EXECUTORS, EXPECTED)
    assert str(found["side by side"]) == str(found["one by one"]) == str(found["submitted"]), "keys and losses, too"
    for words in EXECUTORS.values():  # each finds its own again, and goes on with what failed
        assert run_command(["sweep", "list.yaml", *words, "--dry-run"]) == 0
        assert "5 runs, 3 finished before, 2 to be continued" in capsys.readouterr().out


PRETENDED = ["tracker=none", "hardware.launcher.worker_module=pretending_worker"]


@pytest.fixture
def pretending(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = str(Path(__file__).parents[2] / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ["PYTHONPATH"]]))
    (place / "mine.yaml").write_text(
        json.dumps({"fixed": PRETENDED, "axes": {"seed": [0, 1]}, "report": {"figures": []}})
    )
    return place


def test_cases_alone_and_side_by_side_are_not_mixed_without_a_word(
    pretending: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their times say nothing about each other: they are runs of two kinds of machines."""
    assert run_command(["sweep", "mine.yaml", "seed=0", "--jobs", "2"]) == 0
    capsys.readouterr()
    assert run_command(["sweep", "mine.yaml", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 finished before" in said and "1 made on another kind of machine (--accept-foreign" in said
    assert "side by side" in said
    assert run_command(["sweep", "mine.yaml", "--accept-foreign"]) == 0
    assert "1 finished before, 1 finished" in capsys.readouterr().out
    header = (pretending / "reports" / "mine" / "table.csv").read_text().splitlines()[0]
    assert "machine" in header.split(","), "and a report has a row for each"
    assert run_command(["sweep", "mine.yaml", "--jobs", "2", "--dry-run"]) == 0
    assert "1 finished before" in capsys.readouterr().out


def test_the_record_names_what_a_case_had_of_its_own(pretending: Path) -> None:
    assert run_command(["sweep", "mine.yaml", "--jobs", "2"]) == 0
    jobs = [json.loads(path.read_text()) for path in pretending.glob("runs/mine/*/job.json")]
    own = [job["provenance"]["hardware"]["side_by_side"] for job in jobs]
    assert [one["num_cases"] for one in own] == [2, 2] and not set(own[0]["cores"]) & set(own[1]["cores"])
    assert run_command(["sweep", "mine.yaml"]) == 0
    alone = [path for path in pretending.glob("runs/mine/*/job.json") if "side_by_side" not in path.read_text()]
    assert len(alone) == 2, "and of a case that ran alone nothing more than before"


def test_a_state_of_an_older_version_is_replaced(pretending: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = pretending / "runs" / "sweeps"
    (states / "mine.jobs" / "000").mkdir(parents=True)
    (states / "mine.json").write_text(json.dumps({"name": "mine", "cases": [{"label": "seed=0", "run_dir": "gone"}]}))
    assert run_command(["report", "mine"]) == 0
    assert run_command(["sweep", "mine.yaml", "--jobs", "2"]) == 0
    found = json.loads((states / "mine.json").read_text())
    assert found["schema"] == 1 and [case["status"] for case in found["cases"]] == ["finished"] * 2
    assert sorted(path.name[4:12] for path in (states / "mine.jobs").glob("*.log")) == sorted(
        case["key"][:8] for case in found["cases"]
    ) and not list((states / "mine.jobs").glob("*.json"))


@pytest.mark.interpreter
def test_a_process_that_dies_before_it_has_a_run_is_a_failed_case(
    pretending: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dies = "import os, sys\nif 'side_by_side' in ' '.join(sys.orig_argv): os._exit(3)"
    (pretending / "sitecustomize.py").write_text(dies)
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(pretending), str(Path(__file__).parents[2] / "support"), str(Path(__file__).parents[3])]),
    )
    assert run_command(["sweep", "mine.yaml", "--jobs", "2"]) == 1
    cases = json.loads((pretending / "runs" / "sweeps" / "mine.json").read_text())["cases"]
    assert [case["status"] for case in cases] == ["failed"] * 2
    assert "its process ended with 3: see " in cases[0]["reason"]
    assert Path(cases[0]["reason"].partition("see ")[2]).exists() and "2 failed" in capsys.readouterr().out
