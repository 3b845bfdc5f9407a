"""`gnnexp run -m`: Hydra's multirun, each job through our launcher."""

from __future__ import annotations

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
    (["seed==1"], "not key=value"), (["sede=1,2"], "sede"),
])
def test_what_would_hide_failures_is_refused(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "-m", *arguments]) == 2
    found = capsys.readouterr().err
    assert said in found, found
    assert not list(tmp_path.iterdir())
