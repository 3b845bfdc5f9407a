"""`gnnexp run -m`: Hydra's multirun, each job through our launcher."""

from __future__ import annotations

import errno
import json

import pytest

from gnnexp.cli.main import run_command

SMALL = ["tracker=none", "model.hidden=8", "model.layers=1", "sampler.fanouts=[4]", "train.epochs=2"]


def test_every_job_is_a_run_and_a_failure_stops_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "-m", *SMALL, "train.lr=1e300,0.01", "hydra.sweep.dir=jobs"]) == 1
    states = [json.loads((tmp_path / "jobs" / str(n) / "result.json").read_text()) for n in (0, 1)]
    assert [state["status"] for state in states] == ["failed", "finished"] and states[0]["kind"] == "diverged"
    assert "train.lr=0.01" in capsys.readouterr().out and not (tmp_path / "jobs" / "1" / ".hydra").exists()


@pytest.mark.parametrize(("arguments", "said"), [
    (["hydra/launcher=submitit_slurm"], "hardware=slurm_cpu"), (["hydra/launcher=joblib"], "gnnexp sweep NAME --jobs"),
    (["seed==1"], "not key=value"), (["sede=1,2"], "sede"), (["hydra.job.chdir=true"], "paths are relative to it"),
    (["hydra.sweep.dir=/dev/null/jobs"], "/dev/null is no folder"),
])
def test_what_would_hide_failures_is_refused(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "-m", *arguments]) == 2
    found = capsys.readouterr().err
    assert said in found, found
    assert not list(tmp_path.iterdir())


def test_a_job_whose_folder_is_taken_has_failed_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    """The same command a second time, with a further job."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "-m", *SMALL, "hydra.sweep.dir=jobs", "hardware.timeout_s=100,99"]) == 0
    before = (tmp_path / "jobs" / "0" / "result.json").read_bytes()
    assert run_command(["run", "-m", *SMALL, "hydra.sweep.dir=jobs", "hardware.timeout_s=100,99,98"]) == 1
    said = capsys.readouterr()
    assert said.err.count("a run never writes into a folder that exists") == 2 and "Traceback" not in said.err
    assert (tmp_path / "jobs" / "0" / "result.json").read_bytes() == before
    assert json.loads((tmp_path / "jobs" / "2" / "result.json").read_text())["status"] == "finished"


def test_a_disk_that_refuses_is_named_and_the_next_job_goes_on(tmp_path, monkeypatch, capsys):
    from gnnexp.cli.running import execute

    monkeypatch.chdir(tmp_path)
    calls = iter([OSError(errno.ENOSPC, "No space left on device", "somewhere")])
    write_job = execute.write_job

    def full_once(*arguments):
        if (error := next(calls, None)) is not None:
            raise error
        write_job(*arguments)

    monkeypatch.setattr(execute, "write_job", full_once)
    assert run_command(["run", "-m", *SMALL, "hydra.sweep.dir=jobs", "hardware.timeout_s=100,99"]) == 1
    said = capsys.readouterr()
    assert "the disk is full" in said.err and "Traceback" not in said.err
    assert [path.name for path in (tmp_path / "jobs").glob("*/result.json")] == ["result.json"]
