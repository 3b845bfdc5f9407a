"""Planted faults: every check of a finished run finds the fault that it is for, and nothing in a run without faults."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch

from torture import checks

EPOCHS = 4


def write_checkpoint(run_dir: Path, epoch: int, weight: float) -> None:
    folder = run_dir / "checkpoints" / f"{epoch:08d}-{0:010d}"
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "shared.pt": {"parameters": {"layer": {"weight": torch.full((2,), weight)}}, "best": {"epoch": 1}},
        "rank_0.pt": {"parameters": {}, "record": None},
    }
    files = {}
    for name, content in contents.items():
        torch.save(content, folder / name)
        data = (folder / name).read_bytes()
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "checkpoint.json").write_text(
        json.dumps({"schema": 1, "position": {"epoch": epoch, "step": 0}, "num_ranks": 1, "files": files})
    )


@pytest.fixture
def undisturbed(tmp_path: Path) -> Path:
    run_dir = tmp_path / "undisturbed"
    run_dir.mkdir()
    lines = [
        {
            "epoch": epoch,
            "losses": [1.5 / (epoch + 1), math.nan],
            "metrics": {"loss/train": 1.0 / (epoch + 1), "acc/val": 0.1 * epoch, "time/epoch_s": 0.5},
        }
        for epoch in range(EPOCHS)
    ]
    write_lines(run_dir, lines)
    (run_dir / "result.json").write_text(
        json.dumps({"status": "finished", "epochs": lines, "best": {"epoch": 1, "checkpoint": "checkpoints/best"}})
    )
    (run_dir / "job.json").write_text(json.dumps({"provenance": {"uid": "abc"}}))
    (run_dir / "lock").touch()
    write_checkpoint(run_dir, 2, 0.5)
    write_checkpoint(run_dir, EPOCHS, 0.25)
    (run_dir / "checkpoints" / "best").symlink_to("00000002-0000000000")
    return run_dir


@pytest.fixture
def run_dir(undisturbed: Path) -> Path:
    return Path(shutil.copytree(undisturbed, undisturbed.with_name("run"), symlinks=True))


def write_lines(run_dir: Path, lines: list[dict]) -> None:
    (run_dir / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def lines_of(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "epochs.jsonl").read_text().splitlines()]


def test_a_run_without_faults(run_dir, undisturbed):
    assert checks.run_problems(run_dir, undisturbed, EPOCHS) == []


def doubled_epoch(run_dir):
    lines = lines_of(run_dir)
    write_lines(run_dir, [*lines[:2], lines[1], *lines[2:]])


def lost_epoch(run_dir):
    write_lines(run_dir, lines_of(run_dir)[1:])


def changed_bit_of_a_loss(run_dir):
    lines = lines_of(run_dir)
    lines[2]["losses"][0] = math.nextafter(lines[2]["losses"][0], 9)
    write_lines(run_dir, lines)


def changed_metric(run_dir):
    lines = lines_of(run_dir)
    lines[3]["metrics"]["acc/val"] = math.nextafter(lines[3]["metrics"]["acc/val"], 9)
    write_lines(run_dir, lines)


def unfinished_line(run_dir):
    file = run_dir / "epochs.jsonl"
    file.write_text(file.read_text()[:-5])


def half_a_line_in_the_middle(run_dir):
    file = run_dir / "epochs.jsonl"
    file.write_text(file.read_text().replace("\n", '\n{"epoch": 1, "lo\n', 1))


def failed_result(run_dir):
    change_result(run_dir, status="failed")


def doubled_epoch_of_the_result(run_dir):
    change_result(run_dir, epochs=[*lines_of(run_dir), *lines_of(run_dir)[-1:]])


def wrong_best_of_the_result(run_dir):
    change_result(run_dir, best={"epoch": 0, "checkpoint": "checkpoints/best"})


def change_result(run_dir, **changes):
    file = run_dir / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def no_result(run_dir):
    (run_dir / "result.json").unlink()


def wrong_best_link(run_dir):
    link = run_dir / "checkpoints" / "best"
    link.unlink()
    link.symlink_to("00000004-0000000000")


def no_best_link(run_dir):
    (run_dir / "checkpoints" / "best").unlink()


def damaged_checkpoint(run_dir):
    file = run_dir / "checkpoints" / "00000004-0000000000" / "shared.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def changed_parameter(run_dir):
    write_checkpoint(run_dir, EPOCHS, math.nextafter(0.25, 9) + 1e-7)


def changed_parameter_of_the_best(run_dir):
    write_checkpoint(run_dir, 2, 0.75)


def no_last_checkpoint(run_dir):
    shutil.rmtree(run_dir / "checkpoints" / "00000004-0000000000")


def temporary_file(run_dir):
    (run_dir / ".result.json.123.tmp").touch()


def temporary_file_below(run_dir):
    (run_dir / "status").mkdir()
    (run_dir / "status" / ".rank_0.json.9.tmp").touch()


def half_made_checkpoint(run_dir):
    (run_dir / "checkpoints" / ".00000003-0000000000").mkdir()


def half_removed_checkpoint(run_dir):
    (run_dir / "checkpoints" / ".00000003-0000000000.removed").mkdir()


def half_made_link(run_dir):
    (run_dir / "checkpoints" / ".best.77").symlink_to("00000002-0000000000")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (doubled_epoch, "epochs.jsonl: epochs [0, 1, 1, 2, 3]"),
        (lost_epoch, "epochs.jsonl: epochs [1, 2, 3]"),
        (changed_bit_of_a_loss, "epochs [2] differ"),
        (changed_metric, "epochs [3] differ"),
        (unfinished_line, "does not end"),
        (half_a_line_in_the_middle, "epochs.jsonl"),
        (failed_result, "result.json: failed"),
        (doubled_epoch_of_the_result, "result.json: epochs"),
        (wrong_best_of_the_result, "result.json: best"),
        (no_result, "result.json"),
        (wrong_best_link, "checkpoints/best: 00000004"),
        (no_best_link, "checkpoints/best: no link"),
        (damaged_checkpoint, "differs from its checksum"),
        (changed_parameter, "checkpoint 00000004-0000000000 differ"),
        (changed_parameter_of_the_best, "checkpoint 00000002-0000000000 differ"),
        (no_last_checkpoint, "the last checkpoint is 00000002"),
        (temporary_file, ".result.json.123.tmp"),
        (temporary_file_below, "status/.rank_0.json.9.tmp"),
        (half_made_checkpoint, ".00000003-0000000000"),
        (half_removed_checkpoint, ".removed"),
        (half_made_link, ".best.77"),
    ],
)
def test_a_planted_fault_is_found(run_dir, undisturbed, plant, says):
    plant(run_dir)
    found = checks.run_problems(run_dir, undisturbed, EPOCHS)
    assert any(says in problem for problem in found), found


def test_a_held_lock_is_found(run_dir, undisturbed):
    with (run_dir / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert checks.run_problems(run_dir, undisturbed, EPOCHS) == ["its lock is held by a process"]


def test_a_traceback_is_found_and_words_are_not():
    assert not checks.said_problems("gnnexp: 1 configuration problem\n", "run")
    (found,) = checks.said_problems("x\nTraceback (most recent call last):\n  File …\nOSError: [Errno 28]\n", "run")
    assert "OSError" in found and "`gnnexp run`" in found


def test_a_process_that_lives_on_is_found():
    assert checks.orphan_problems([], 5) == []
    (found,) = checks.orphan_problems(["rank 17 (child of 1)"], 5)
    assert "rank 17" in found


# --- the store -------------------------------------------------------------------------------------------------------
@pytest.fixture
def store(run_dir: Path, tmp_path: Path, mlflow_store) -> Path:
    """A real store of MLflow's with the run in it, delivered by MLflow's client."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=mlflow_store(tmp_path))
    artifacts = tmp_path / "artifacts"
    experiment = client.create_experiment("gnnexp", artifacts.as_uri())
    run = client.create_run(experiment, tags={"gnnexp.uid": "abc", "kind": "run"}).info
    client.log_batch(
        run.run_id,
        metrics=[
            Metric("loss/train", line["metrics"]["loss/train"], 1000 + line["epoch"], line["epoch"])
            for line in lines_of(run_dir)
        ],
    )
    for name in ("config.yaml", "result.json"):
        file = tmp_path / name
        file.touch()
        client.log_artifact(run.run_id, str(file))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank_0.log").touch()
    client.log_artifacts(run.run_id, str(tmp_path / "logs"), "logs")
    client.set_terminated(run.run_id)
    client.create_run(experiment, tags={"gnnexp.uid": "report", "kind": "sweep", "gnnexp.sweep": "storm"})
    return tmp_path / "mlflow.db"


def planted(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as database:
        assert database.execute(statement).rowcount > 0
    database.close()


def test_the_store_has_it_once(store, run_dir):
    assert checks.store_problems(store, [run_dir]) == []
    assert checks.report_problems(store, "storm") == []


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "insert into tags (key, value, run_uuid) select 'gnnexp.uid', 'abc', 'another' from tags limit 1",
            "MLflow has 2 runs of run",
        ),
        (
            "insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from metrics where step = 2",
            "1 metric steps more than once",
        ),
        ("delete from metrics where step = 3", "loss/train is not the record's"),
        ("update metrics set value = value + 1e-15 where step = 1", "loss/train is not the record's"),
        ("update runs set status = 'RUNNING'", "MLflow says RUNNING"),
        ("update tags set value = 'stranger' where value = 'abc'", "MLflow has 0 runs of run"),
        ("insert into tags (key, value, run_uuid) values ('gnnexp.uid', 'second', 'x')", "a run of nobody: second"),
    ],
)
def test_a_planted_fault_of_the_store_is_found(store, run_dir, statement, says):
    if "'another'" in statement or "'x'" in statement:
        with sqlite3.connect(store) as database:
            database.execute("pragma foreign_keys = off")
            name = "another" if "'another'" in statement else "x"
            columns = [row[1] for row in database.execute("pragma table_info(runs)")]
            values = ", ".join(f"'{name}'" if column == "run_uuid" else column for column in columns)
            database.execute(f"insert into runs ({', '.join(columns)}) select {values} from runs limit 1")
        database.close()
    planted(store, statement)
    found = checks.store_problems(store, [run_dir])
    assert any(says in problem for problem in found), found


def test_missing_files_of_a_run_are_found(store, run_dir):
    (found,) = store.parent.glob("artifacts/*/artifacts/config.yaml")
    found.unlink()
    assert checks.store_problems(store, [run_dir]) == ["MLflow has no config.yaml of it"]


def test_a_second_report_is_found(store):
    planted(
        store,
        "insert into tags (key, value, run_uuid) select 'gnnexp.sweep', 'storm', run_uuid from runs "
        "where run_uuid not in (select run_uuid from tags where key = 'gnnexp.sweep')",
    )
    assert checks.report_problems(store, "storm") == ["MLflow has 2 reports of the sweep"]
