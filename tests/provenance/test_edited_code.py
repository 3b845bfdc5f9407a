"""Edited code is never "finished before", from what a user types to what is on disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError, Problem
from gnnexp.launchers.queue.answers import Alive, UnknownJob
from gnnexp.provenance import machine
from gnnexp.provenance.code import _imported_digest, code_of_config
from gnnexp.record.runs import find_runs

MODEL = "from gnnexp.models.sage import SAGEOptions\n\n\nclass Mine(SAGEOptions):\n    rate = 1\n"
SWEEP = """
fixed: [dataset=digits, tracker=none, model=mine, model.hidden=8, model.layers=1, "sampler.fanouts=[3]",
        train.epochs=1, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0]}
report: {figures: []}
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model of the user's own, its configuration, and a sweep."""
    (tmp_path / "mymodel.py").write_text(MODEL)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text(
        "_target_: mymodel.Mine\nhidden: 8\nlayers: 1\ndropout: 0.0\n"
    )
    (tmp_path / "mine.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("mymodel", None)


def runs(workplace: Path) -> list[Path]:
    return sorted((workplace / "runs" / "mine").iterdir())


def sweep(*more: str) -> int:
    return command("sweep", "mine.yaml", "--config-dir", "conf", *more)


def command(*arguments: str) -> int:
    """What a new process would do: it has imported nothing of the user's."""
    sys.modules.pop("mymodel", None)
    _imported_digest.cache_clear()
    return run_command(list(arguments))


@pytest.mark.slow
def test_a_sweep_is_run_again_when_its_code_was_edited(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    assert sweep() == 0 and "1 finished before" in capsys.readouterr().out
    (workplace / "mymodel.py").write_text(MODEL.replace("rate", '"""Words."""\n\n    # why\n    rate'))
    assert sweep() == 0 and len(runs(workplace)) == 1, "words are no code"
    (workplace / "mymodel.py").write_text(MODEL.replace("= 1", "= 2"))
    assert sweep() == 0 and len(runs(workplace)) == 2
    (workplace / "mymodel.py").write_text(MODEL)
    assert sweep() == 0 and len(runs(workplace)) == 2, "the first run's code is back"
    assert sweep("--rerun") == 0 and len(runs(workplace)) == 3
    provenance = json.loads((runs(workplace)[0] / "job.json").read_text())["provenance"]
    assert set(provenance["code"]["own"]) == {"mymodel"} and provenance["repositories"] == []


@pytest.mark.slow
def test_runs_of_another_kind_of_machine_are_found_and_not_taken(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep() == 0
    (run,) = runs(workplace)
    _elsewhere(run, cpu="Another CPU")
    capsys.readouterr()
    assert sweep("--dry-run") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 finished before" in said and "1 made on another kind of machine (--accept-foreign takes them)" in said
    assert sweep("--dry-run", "--accept-foreign") == 0 and "1 finished before" in capsys.readouterr().out
    assert sweep() == 0 and len(runs(workplace)) == 2
    _elsewhere(run, host="another name only")
    capsys.readouterr()
    assert sweep("--dry-run") == 0 and "1 finished before" in capsys.readouterr().out


SELF_EDITING = (
    MODEL
    + """
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        import os, pathlib
        if "RANK" in os.environ:
            file = pathlib.Path(__file__)
            file.write_text(file.read_text().replace("rate = 1", "rate = 2"))
"""
)


@pytest.mark.slow
def test_code_that_is_edited_while_a_sweep_runs_is_not_mixed_in(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rank of the first case edits the code, while the second case waits."""
    (workplace / "mymodel.py").write_text(SELF_EDITING)
    real = SWEEP.replace("hardware.launcher.worker_module=pretending_worker", "hardware.threads=1")
    (workplace / "mine.yaml").write_text(real.replace("seed: [0]", "seed: [0, 1]"))
    assert sweep() == 1
    (first,) = runs(workplace)
    result = json.loads((first / "result.json").read_text())
    asked = json.loads((workplace / "runs" / "sweeps" / "mine.json").read_text())["cases"]
    assert asked[1]["reason"] == "its code was edited since the sweep began: start the sweep again"
    assert result["provenance"]["run_key"] == asked[0]["key"], "the code that its ranks had imported"
    assert result["provenance"]["code"]["own"] != dict(code_of_config(result["config"]).own)
    assert result["nodes"] == [machine.this_node().to_json()]
    assert sweep() == 0 and len(runs(workplace)) == 3, "both again: with the code of now"
    capsys.readouterr()
    assert sweep("--dry-run") == 0 and "2 finished before" in capsys.readouterr().out


@pytest.mark.slow
def test_a_job_that_waited_has_the_code_that_it_executed(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run directory is made, then the code is edited, then the ranks start, as in the queue of a cluster."""
    from gnnexp.cli.console import make_console
    from gnnexp.cli.running.execute import carry_out, start_run
    from gnnexp.cli.running.prepare import checked_config
    from gnnexp.launchers.base import Launchers

    words = [
        "dataset=digits",
        "tracker=none",
        "model=mine",
        "model.hidden=8",
        "model.layers=1",
        "sampler.fanouts=[3]",
        "train.epochs=1",
        "hardware.threads=1",
        "hydra.run.dir=run",
    ]
    monkeypatch.syspath_prepend(str(workplace))
    checked, console = checked_config(words, "conf"), make_console()
    composed, experiment = checked
    start_run(checked, console, None)
    (workplace / "mymodel.py").write_text(MODEL.replace("= 1", "= 2"))
    with Launchers() as launchers:
        assert carry_out(Path("run"), experiment, console, launchers).status == "finished"
    before, after = (json.loads(Path("run", name).read_text())["provenance"] for name in ("job.json", "result.json"))
    assert after["code"]["own"] == dict(code_of_config(composed.config).own) != before["code"]["own"]
    assert after["run_key"] == "" != before["run_key"] and after["earlier_code"] == [before["code"]]


def test_a_result_of_other_code_than_was_asked_for_is_not_taken(workplace: Path) -> None:
    assert sweep() == 0
    (run,) = runs(workplace)
    result = json.loads((run / "result.json").read_text())
    result["provenance"]["run_key"] = ""  # as `as_executed` leaves it where attempts executed several codes
    (run / "result.json").write_text(json.dumps(result))
    assert sweep() == 0 and len(runs(workplace)) == 2


BEGUN = [
    "run",
    "dataset=digits",
    "tracker=none",
    "model=mine",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[3]",
    "hardware.threads=1",
    "train.epochs=2",
    "hydra.run.dir=runs/begun",
    "--config-dir",
    "conf",
]


def _provenance(run: str) -> dict[str, Any]:
    return json.loads(Path("runs", run, "result.json").read_text())["provenance"]


def _cut_off(run: str) -> None:
    """As a kill during the second epoch leaves it."""
    folder = Path("runs", run)
    (folder / "result.json").unlink()
    latest = max(path for path in (folder / "checkpoints").iterdir() if path.is_dir() and not path.is_symlink())
    (folder / "checkpoints" / "best").unlink()
    shutil.rmtree(latest)
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text(lines[0])


@pytest.mark.slow
def test_a_run_goes_on_with_edited_code_only_where_the_user_says_so(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*BEGUN) == 0
    key = _provenance("begun")["run_key"]
    _cut_off("begun")
    (workplace / "mymodel.py").write_text(MODEL.replace("= 1", "= 2"))
    assert command("resume", "runs/begun") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "mymodel" in said and "--changed-code runs/begun" in said
    assert command("resume", "runs/begun", "--changed-code") == 0
    mixed = _provenance("begun")
    assert key and mixed["run_key"] == "" and len(mixed["earlier_code"]) == 1
    assert mixed["earlier_code"][0]["own"]["mymodel"] != mixed["code"]["own"]["mymodel"]


@pytest.mark.slow
def test_a_run_that_goes_on_with_more_ranks_is_no_case(workplace: Path) -> None:
    assert command(*BEGUN) == 0
    _cut_off("begun")
    assert run_command(["resume", "runs/begun", "hardware.workers=2"]) == 0
    assert _provenance("begun")["run_key"] == ""
    assert [run.key for run in find_runs(Path("runs"))] == [""]


def _elsewhere(run: Path, **node: Any) -> None:
    """Have the records say that the run was made on another machine."""
    for name in ("job.json", "result.json"):
        record = json.loads((run / name).read_text())
        here = machine.this_node().to_json()
        record["provenance"]["hardware"] |= node
        record["nodes"] = [here | node]
        (run / name).write_text(json.dumps(record))


def test_run_again_keeps_the_earlier_run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "run",
        "dataset=digits",
        "tracker=none",
        "hardware.launcher.worker_module=pretending_worker",
        "hydra.run.dir=runs/one",
    ]
    assert run_command(command) == 0
    assert run_command(command) == 2 and "--rerun" in capsys.readouterr().err
    first = (workplace / "runs" / "one" / "job.json").read_text()
    assert run_command([*command, "--rerun"]) == 0
    assert (workplace / "runs" / "one.before-1" / "job.json").read_text() == first
    assert run_command([*command, "--rerun"]) == 0 and (workplace / "runs" / "one.before-2").is_dir()
    assert run_command([*command, "--rerun", "train.epochs=-1"]) == 2
    assert not (workplace / "runs" / "one.before-3").exists(), "nothing is moved before all is right"
    (workplace / "runs" / "other").mkdir()
    (workplace / "runs" / "other" / "file").write_text("not a run")
    assert run_command([*command[:-1], "hydra.run.dir=runs/other", "--rerun"]) == 2
    assert (workplace / "runs" / "other" / "file").exists()


def test_a_run_that_cannot_be_made_again_keeps_its_place(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the memory does not hold, or Ctrl-C: after the directory was set aside."""
    command = [
        "run",
        "dataset=digits",
        "tracker=none",
        "hardware.launcher.worker_module=pretending_worker",
        "--rerun",
        "hydra.run.dir=runs/one",
    ]
    assert run_command(command) == 0
    first = (workplace / "runs" / "one" / "job.json").read_text()
    for error, code in ((ConfigError(Problem("a", "b", "c", "d")), 2), (KeyboardInterrupt(), 130)):

        def refuse(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("gnnexp.cli.running.execute.prepare", refuse)
        assert run_command(command) == code
        assert [path.name for path in (workplace / "runs").iterdir()] == ["one"]
        assert (workplace / "runs" / "one" / "job.json").read_text() == first


@pytest.mark.parametrize("inside", [".", "logs"])
def test_the_current_folder_is_not_set_aside(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, inside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "dataset=digits", "tracker=none", "hardware.launcher.worker_module=pretending_worker", "--rerun"]
    assert run_command([*command, "hydra.run.dir=runs/one"]) == 0
    monkeypatch.chdir(workplace / "runs" / "one" / inside)
    assert run_command([*command, f"hydra.run.dir={'.' if inside == '.' else '..'}"]) == 2
    assert "go to another folder" in capsys.readouterr().err
    assert [path.name for path in (workplace / "runs").iterdir()] == ["one"]


def test_a_run_whose_job_may_be_alive_is_not_set_aside(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds the lock of a detached job's run; its ranks would write into the new one."""
    arguments = [
        "run",
        "dataset=digits",
        "tracker=none",
        "hardware.launcher.worker_module=pretending_worker",
        "hydra.run.dir=runs/one",
    ]
    assert run_command(arguments) == 0
    for answer in (Alive("4711", "RUNNING"), UnknownJob("4711", "squeue does not answer")):
        monkeypatch.setattr(
            "gnnexp.cli.commands.resume.job_state_of", lambda run_dir, controller, answer=answer: answer
        )
        assert run_command([*arguments, "--rerun"]) == 2
        assert "4711" in capsys.readouterr().err
        assert [path.name for path in (workplace / "runs").iterdir()] == ["one"]


PARTITIONER = """from gnnexp.partitioners.random import RandomPartitioner


class Mine(RandomPartitioner):
    rate = 1
"""


@pytest.mark.parametrize("words", [["run"], ["run", "-m"]])
def test_what_earlier_code_made_is_not_kept_as_that_of_the_edited_code(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """The graph is prepared for minutes; the partitioner, which is imported, is edited meanwhile."""
    from gnnexp.cli.running import prepare

    file = workplace / "mypartitioner.py"
    file.write_text(PARTITIONER)
    prepare_graph = prepare.prepare_graph

    def slowly(*arguments: Any) -> Any:
        file.write_text(PARTITIONER.replace("= 1", "= 2"))
        return prepare_graph(*arguments)

    monkeypatch.setattr(prepare, "prepare_graph", slowly)
    monkeypatch.setenv("GNNEXP_CACHE", str(workplace / "cache"))
    _imported_digest.cache_clear()
    assert run_command(
        [
            *words,
            "dataset=digits",
            "tracker=none",
            "paradigm=split_parallel",
            "hardware.workers=2",
            "partitioner._target_=mypartitioner.Mine",
        ]
    ) in (1, 2)
    assert "mypartitioner.py='was edited'" in capsys.readouterr().err
    assert (workplace / "cache" / "graphs").is_dir() and not list((workplace / "cache").glob("partitions/*"))
    sys.modules.pop("mypartitioner")


def test_of_a_folder_of_configurations_only_these_are_recorded(workplace: Path) -> None:
    """It may be the project's own folder: with data, runs, links to nowhere, and other repositories."""
    subprocess.run(["git", "init", "-q", str(workplace)], check=True)
    (workplace / "model").mkdir()
    shutil.copy("conf/model/mine.yaml", "model/mine.yaml")
    (workplace / "nowhere").symlink_to("there is none")
    (workplace / "folder").symlink_to("conf")
    (workplace / "data.bin").write_bytes(b"a lot of data\n")
    assert (
        command(
            "run",
            "dataset=digits",
            "tracker=none",
            "model=mine",
            "--config-dir",
            ".",
            "hydra.run.dir=one",
            "sampler.fanouts=[3]",
            "hardware.launcher.worker_module=pretending_worker",
        )
        == 0
    )
    (found,) = json.loads(Path("one", "job.json").read_text())["provenance"]["repositories"]
    assert "b/model/mine.yaml" in found["diff"] and "b/mymodel.py" in found["diff"] and "a lot" not in found["diff"]
