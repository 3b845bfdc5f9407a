"""Damaged records: every command says which file and field, and one bad record stops nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recording_tracker import STORE
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command

DEEP = "[" * 100_000


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of a sweep, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        make_run(Path("runs/s") / name)
    write_state()
    return tmp_path


def make_run(run_dir: Path, tracker: str = "gnnexp.trackers.none.NoTracker") -> None:
    write_job(
        run_dir,
        uid=run_dir.name,
        graph={
            "num_nodes": 10,
            "num_edges": 20,
            "num_features": 4,
            "num_classes": 2,
            "num_train": 5,
            "num_links": 0,
            "num_relations": 0,
        },
    )
    edit(run_dir / "job.json", lambda job: job["config"]["tracker"].update(_target_=tracker))
    write_epochs(run_dir, 3)
    write_result(run_dir)


def write_state(**changes: object) -> None:
    cases = [{"label": name, "run_dir": f"runs/s/{name}", "status": "finished"} for name in ("one", "two")]
    Path("runs/sweeps").mkdir(exist_ok=True)
    Path("runs/sweeps/s.json").write_text(json.dumps({"name": "s", "cases": cases, **changes}))


def edit(file: Path, change: Callable[[Any], object]) -> None:
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert run_command(command) == 2
    said = capsys.readouterr().err
    assert "fix: " in said and "Traceback" not in said
    return said


COMMANDS = {
    "job.json": [["status", "runs/s/one"], ["logs", "runs/s/one"], ["resume", "runs/s/one"], ["report", "--sync"]],
    "result.json": [
        ["report", "s"],
        ["report", "runs/s/one"],
        ["report", "compare", "runs/s/one", "runs/s/two"],
        ["plan", "s", "--hardware", "p3_8xlarge"],
        ["export", "s"],
        ["report", "--sync"],
    ],
}


@pytest.mark.parametrize("file", COMMANDS)
@pytest.mark.parametrize("text", [DEEP, "{", "", "[]", "null", '"\\ud800"', "9" * 5000], ids=lambda text: text[:6])
def test_what_is_no_record(capsys: pytest.CaptureFixture[str], file: str, text: str) -> None:
    Path("runs/s/one", file).write_text(text)
    for command in COMMANDS[file]:
        assert "runs/s/one" in refused(capsys, *command)


FIELDS = [
    ("job.json", "config.hardware", lambda job: job["config"].update(hardware=[])),
    ("job.json", "config.hardware.workers", lambda job: job["config"]["hardware"].update(workers="x")),
    ("job.json", "config.hardware.links", lambda job: job["config"]["hardware"].update(links={"rank": 0})),
    ("job.json", "config.train.epochs", lambda job: job["config"]["train"].update(epochs=None)),
    ("job.json", "provenance.choices", lambda job: job["provenance"].update(choices=None)),
    ("result.json", "summary", lambda result: result["summary"].update({"acc/test": None})),
    ("result.json", "epochs[1].metrics", lambda result: result["epochs"][1]["metrics"].update({"time/epoch_s": "x"})),
    ("result.json", "epochs[1].metrics", lambda result: result["epochs"][1]["metrics"].update({"a": 10**400})),
    ("result.json", "config.model.layers", lambda result: result["config"]["model"].update(layers=2**70)),
    ("result.json", "config.model", lambda result: result["config"].pop("model")),
    ("result.json", "status", lambda result: result.update(status=["finished"])),
    (
        "result.json",
        "nodes[0].cores",
        lambda result: result.update(nodes=[{"host": "h", "cpu": "c", "cores": "two", "gpus": [], "torch": "2"}]),
    ),
    ("result.json", "provenance.graph", lambda result: result["provenance"]["graph"].update(num_train="many")),
    ("result.json", "paradigm.rows_initial", lambda result: result.update(paradigm={"rows_initial": {"x": 1}})),
]


@pytest.mark.parametrize(("file", "field", "change"), FIELDS, ids=[field for _, field, _ in FIELDS])
def test_the_field_is_named(
    capsys: pytest.CaptureFixture[str], file: str, field: str, change: Callable[[Any], object]
) -> None:
    edit(Path("runs/s/one", file), change)
    for command in COMMANDS[file]:
        assert field in refused(capsys, *command)


def test_a_damaged_record_is_left_out_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/s/one/result.json").write_text(DEEP)
    assert run_command(["report"]) == 0
    said = capsys.readouterr().out
    assert "runs/s/two" in said and "runs/s/one" not in said


@pytest.mark.parametrize(
    "text",
    [
        "{",
        DEEP,
        "[]",
        '{"cases": [{"run_dir": "runs/s/one"}]}',
        '{"cases": [null]}',
        '{"cases": [{"label": "a", "run_dir": 5}]}',
        '{"cases": {}}',
        "{}",
        '{"cases": [], "report": "x"}',
        '{"cases": [], "report": null}',
        '{"cases": [], "notes": 5}',
    ],
)
@pytest.mark.parametrize("command", [["report", "s"], ["plan", "s", "--hardware", "p3_8xlarge"], ["export", "s"]])
def test_a_damaged_state_of_a_sweep(capsys: pytest.CaptureFixture[str], text: str, command: list[str]) -> None:
    Path("runs/sweeps/s.json").write_text(text)
    assert "runs/sweeps/s.json" in refused(capsys, *command)


def test_cases_may_lack_what_older_versions_did_not_write(capsys: pytest.CaptureFixture[str]) -> None:
    write_state(cases=[{"label": "a", "run_dir": "runs/s/one"}, {"label": "b", "run_dir": None, "reason": None}])
    assert run_command(["report", "s"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        ("job.json", "{"),
        ("job.json", b"\xff\xfe"),
        ("result.json", DEEP),
        ("epochs.jsonl", "{}\n"),
        ("delivery.json", "[]"),
        ("delivery.json", '{"uri": 5}'),
    ],
    ids=lambda damage: damage[0],
)
def test_one_bad_run_does_not_stop_the_delivery_of_the_others(
    capsys: pytest.CaptureFixture[str], damage: tuple[str, str | bytes]
) -> None:
    for name in ("one", "two", "zero"):
        make_run(Path("runs/t") / name, "recording_tracker.RecordingTracker")
    file = Path("runs/t/two", damage[0])
    file.write_bytes(damage[1] if isinstance(damage[1], bytes) else damage[1].encode())
    assert f"runs/t/two/{damage[0]}" in refused(capsys, "report", "--sync")
    assert STORE.read_text().split() == ["runs/t/one", "runs/t/zero"]


def test_a_tracker_that_cannot_be_built_stops_its_own_run_only(capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Path("runs/t/one"), "recording_tracker.RecordingTracker")
    edit(Path("runs/s/one/job.json"), lambda job: job["config"]["tracker"].update(_target_="nowhere.Tracker"))
    assert "nowhere" in refused(capsys, "report", "--sync")
    assert STORE.read_text().split() == ["runs/t/one"]


def test_a_report_names_no_file_outside_of_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("reports/s")
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(
        json.dumps(
            {
                "uid": "u",
                "sweep": "s",
                "digest": "d",
                "status": "finished",
                "note": "",
                "files": ["../../secret"],
                "tracker": {"_target_": "recording_tracker.RecordingTracker"},
            }
        )
    )
    assert "../../secret" in refused(capsys, "report", "--sync")


@pytest.mark.parametrize("line", ["5", "[]", '{"event": 5}', '{"event": "start", "time": "now"}', '{"time": 1}'])
def test_lines_of_attempts_that_are_none(capsys: pytest.CaptureFixture[str], line: str) -> None:
    Path("runs/s/one/attempts.jsonl").write_text(f'{line}\n{{"event": "start", "time": 1e9, "ranks": 2}}\n')
    assert run_command(["status", "runs/s/one"]) == 0
    assert "start: ranks 2" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["[]", "{", '{"rank": "x", "state": "running"}', '{"rank": 0, "state": 5}'])
def test_a_status_that_is_none_is_left_out(capsys: pytest.CaptureFixture[str], text: str) -> None:
    Path("runs/s/one/status").mkdir()
    Path("runs/s/one/status/rank_0.json").write_text(text)
    assert run_command(["status", "runs/s/one"]) == 0, capsys.readouterr().err
