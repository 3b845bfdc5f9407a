"""Names that distinguish runs, and the machine of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers.delivery import RunRecord, read_run_record
from gnnexp.trackers.description import (
    LONGEST_NAME,
    OWN_TAGS,
    end_tags,
    machine_tags,
    make_params,
    make_tags,
    parent_uid,
    run_name,
)
from gnnexp.trackers.entities import ended_ms, started

MACHINE = {"host": "here", "cpu": "Some CPU", "cores": 2, "gpus": ["Card", "Card"]}
LOCAL, SLURM = "gnnexp.launchers.local.LocalLauncher", "gnnexp.launchers.slurm.SlurmLauncher"


def record_of(
    folder: Path,
    launcher: str = LOCAL,
    result: dict[str, Any] | None = None,
    name: str | None = None,
    **provenance: object,
) -> RunRecord:
    write_job(folder, **provenance)
    job = json.loads((folder / "job.json").read_text())
    job["config"]["hardware"] |= {"launcher": {"_target_": launcher}, "device": "auto"}
    job["config"]["name"] = name
    (folder / "job.json").write_text(json.dumps(job))
    if result is not None:
        write_epochs(folder, 1)
        write_result(folder, **result)
    return read_run_record(folder)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("train.lr=0.1 seed=3", "lr=0.1, seed 0"),
        ("seed=3 train.lr=0.1", "lr=0.1, seed 0"),
        ("+seed=3 a.b=c", "b=c, seed 0"),
        ("dataset.seed=4", "seed=4"),
        ("a=b", "b"),
        ("system=gsplit dataset=graphdata_npz", "gsplit digits"),  # its own name
        ("system=gsplit model=my/own", "gsplit my/own"),
        ("system=gsplit +train.batch_size=128", "gsplit batch_size=128"),
        ("train.lr=1 optimizer.lr=2 model.layers=3", "train.lr=1 optimizer.lr=2 layers=3"),
        ("scheduler=null model.bias=true", "scheduler=null bias=true"),
        ("sampler.fanouts=[15, 10] name='a b'", "fanouts=[15, 10] 'a b'"),
        ("~model.dropout system=p3", "~model.dropout system=p3"),
        ("a case", "a case"),
        ("seed=3", "dgl digits sage, 2 ranks, seed 0"),
        ("run", "dgl digits sage, 2 ranks, seed 0"),
        ("", "dgl digits sage, 2 ranks, seed 0"),
        (None, "dgl digits sage, 2 ranks, seed 0"),
    ],
)
def test_a_run_of_a_sweep_is_named_by_what_differs(tmp_path: Path, label: str | None, name: str) -> None:
    assert run_name(record_of(tmp_path, label=label)) == name


def test_the_users_own_name_comes_first(tmp_path: Path) -> None:
    assert run_name(record_of(tmp_path, label="a=b", name="mine")) == "mine b"


def test_a_long_name_keeps_its_seed(tmp_path: Path) -> None:
    name = run_name(record_of(tmp_path, label=f"seed=0 a={'b' * 400}"))
    assert len(name) == LONGEST_NAME and name.endswith("b…, seed 0")


def test_the_case_is_a_parameter_and_classes_of_gnnexp_are_none(tmp_path: Path) -> None:
    record = record_of(tmp_path, label="train.lr=0.1 seed=3")
    record.job["config"]["model"] = {"_target_": "gnnexp.models.sage.SAGEOptions", "hidden": 8}
    record.job["config"]["sampler"] = {"_target_": "mine.Sampler"}
    params = make_params(record)
    assert params["case"] == "train.lr=0.1" and params["sampler._target_"] == "mine.Sampler"
    assert "model._target_" not in params and params["model.hidden"] == "8"
    assert "case" not in make_params(record_of(tmp_path))


def test_cases_of_a_sweep_have_different_colours(tmp_path: Path) -> None:
    record = record_of(tmp_path)
    names = [f"2026-11-27_14-23-44-772127-{number:03d}-system_dgl" for number in range(12)]
    colours = {make_tags(tmp_path / name, record)["mlflow.runColor"] for name in names}
    assert len(colours) == 12 and all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert make_tags(tmp_path / "x", record)["mlflow.runColor"] in colours


def test_the_machine_is_that_of_the_ranks_when_they_have_ended(tmp_path: Path) -> None:
    launched = {"hardware": MACHINE, "libraries": {"torch": "2.0"}}
    before = machine_tags(record_of(tmp_path, **launched))
    assert before == {"host": "here", "cpu": "Some CPU (2 cores)", "gpu": "2 x Card", "torch": "2.0"}
    nodes = [{"host": host, "cpu": "Other", "cores": 4, "gpus": [], "torch": "2.1"} for host in ("n1", "n2")]
    record = record_of(tmp_path, result={"nodes": nodes}, **launched)
    record = RunRecord(
        record.job,
        record.epochs,
        {**record.result, "provenance": {"chosen": {"device": "cuda:0", "comm_backend": "nccl"}}},
    )
    assert machine_tags(record) == {
        "host": "n1, n2",
        "cpu": "Other (4 cores)",
        "gpu": "none",
        "torch": "2.1",
        "device": "cuda:0",
        "backend": "nccl",
    }
    tags = end_tags(tmp_path, record)
    assert tags["host"] == "n1, n2" and "Made on n1, n2: Other (4 cores), device cuda:0" in tags["mlflow.note.content"]


def test_the_login_node_is_not_the_machine_of_a_job(tmp_path: Path) -> None:
    assert machine_tags(record_of(tmp_path, SLURM, hardware=MACHINE)) == {}


def test_a_record_without_a_machine(tmp_path: Path) -> None:
    assert machine_tags(record_of(tmp_path)) == {}


def test_an_imported_run_has_no_parent_here(tmp_path: Path) -> None:
    assert parent_uid(record_of(tmp_path, sweep="s", sweep_uid="u")) == "u"
    assert parent_uid(record_of(tmp_path, sweep="s", sweep_uid="u", imported={"file": "f"})) == ""
    assert parent_uid(record_of(tmp_path, sweep="s")) == "", "a record of an earlier version"


def test_all_tags_are_listed(tmp_path: Path) -> None:
    """So that a user's own tags cannot have their names."""
    everything = {
        "paradigm": {"exact": False, "approximates": "x"},
        "reason": "gone",
        "status": "failed",
        "ended": "patience",
    }
    record = record_of(tmp_path, result=everything, sweep="s", hardware=MACHINE, code_version="1+abc")
    names = {*make_tags(tmp_path, record), *end_tags(tmp_path, record)}
    assert {name for name in names if not name.startswith("mlflow.")} <= OWN_TAGS


@pytest.mark.parametrize(
    ("began", "duration_s"), [("1970-01-01T00:16:00+00:00", 42.0), ("1970-01-01T01:00:00+00:00", 0.0)]
)
def test_no_run_ends_before_it_began(tmp_path: Path, began: str, duration_s: float) -> None:
    """A clock was set back by an hour in the middle."""
    write_job(tmp_path, date=began)
    write_epochs(tmp_path, 3)
    record = read_run_record(tmp_path)
    assert ended_ms(record) - started(record) == 1000 * duration_s  # type: ignore[operator]
