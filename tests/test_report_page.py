"""`gnnexp report` on a sweep: its page, its delivery once, later, and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import read_strictly
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command

MLFLOW = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "timeout_s": 200.0}  # a busy machine starts slowly
NONE = {"_target_": "gnnexp.trackers.none.NoTracker"}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def write_sweep(tracker: dict[str, Any]) -> None:
    """Two runs, one of them failed, and a case that was refused before it had a run."""
    cases = [{"label": "optimizer.lr=1", "run_dir": "", "status": "failed", "reason": "no <memory>", "key": "c"}]
    for name, status in (("a", "finished"), ("b", "failed")):
        folder = Path("runs/mine") / name
        write_job(folder, uid=name)
        job = json.loads((folder / "job.json").read_text())
        job["config"] |= {"tracker": tracker, "system": name}
        (folder / "job.json").write_text(json.dumps(job))
        write_epochs(folder, 2)
        write_result(folder, status, "" if status == "finished" else "rank 0 <died>")
        cases.append(
            {"label": f"system={name}", "run_dir": str(folder), "status": f"{status} before", "reason": "", "key": name}
        )
    Path("runs/sweeps").mkdir()
    Path("runs/sweeps/mine.json").write_text(
        json.dumps(
            {
                "schema": 1,
                "name": "mine",
                "description": "Two & one",
                "command": "gnnexp sweep mine.yaml",
                "rows": [],
                "kind": None,
                "published": None,
                "cases": cases,
            }
        )
    )


def found_in_store(place: Path) -> Callable[[str], list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    return lambda wanted: list(client.search_runs([client.get_experiment_by_name("gnnexp").experiment_id], wanted))


def test_a_sweeps_page_has_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(NONE)
    assert run_command(["report", "mine"]) == 0
    said = capsys.readouterr().out
    assert "reports/mine/report.html" in said and "delivered" not in said
    page = read_strictly(Path("reports/mine/report.html").read_text(encoding="utf-8"))
    assert page.problems == [] and page.within("h1") == ["mine"]
    assert "gnnexp sweep mine.yaml" in page.within("code") and "Two & one" in page.within("p")
    cells = set(page.within("td", "th", "span"))
    assert {"optimizer.lr=1", "no <memory>", "system=a", "system=b", "rank 0 <died>", "1 finished", "2 failed"} <= cells
    assert "2 of 3 runs failed: the tables do not contain them." in page.within("li")
    assert not Path("reports/mine/report.json").exists(), "nobody takes it"


def test_other_reports_leave_the_sweeps_page_alone() -> None:
    write_sweep(NONE)
    assert run_command(["report", "mine"]) == 0
    before = Path("reports/mine/report.html").read_bytes()
    assert run_command(["report", "balance", "mine"]) == 0
    assert Path("reports/mine/report.html").read_bytes() == before
    assert "mine: balance" in Path("reports/mine/balance.html").read_text(encoding="utf-8")
    assert run_command(["report", "runs/mine/a", "--out", "mine"]) == 0
    assert read_strictly(Path("mine/report.html").read_text(encoding="utf-8")).problems == []


@pytest.mark.slow
def test_it_is_delivered_once_later_and_again(
    tmp_path: Path, mlflow_store: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    away = {**MLFLOW, "uri": f"sqlite:///{tmp_path / 'later' / 'mlflow.db'}"}
    write_sweep(away)
    assert run_command(["report", "mine"]) == 0
    assert "gnnexp report --sync" in capsys.readouterr().out
    (tmp_path / "later").mkdir()
    mlflow_store(tmp_path / "later")
    assert run_command(["report", "--sync"]) == 0
    assert "2 runs delivered, 1 report\n" in capsys.readouterr().out
    assert run_command(["report", "--sync"]) == 0
    assert "0 runs delivered\n" in capsys.readouterr().out
    search = found_in_store(tmp_path / "later")
    (found,) = search("tags.gnnexp.sweep = 'mine'")
    assert "2 of 3 runs failed" in found.data.tags["mlflow.note.content"] and len(search("tags.kind = 'run'")) == 2

    assert run_command(["report", "mine"]) == 0
    assert "delivered" not in capsys.readouterr().out, "it says what it said before"
    assert run_command(["report", "mine", "--rows", "system,model"]) == 0
    assert "delivered to the dashboard as `sweep mine`" in capsys.readouterr().out
    (again,) = search("tags.kind = 'sweep'")
    assert again.info.run_id == found.info.run_id
    assert "| system | model |" in again.data.tags["mlflow.note.content"]
    assert run_command(["report", "mine", "--out", "elsewhere"]) == 0
    assert not Path("elsewhere/report.json").exists(), "a folder of the user's choice stays the user's"
