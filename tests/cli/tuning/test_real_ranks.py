"""`gnnexp tune` with ranks that train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose

TINY = ["tracker=none", "train.epochs=1", "model.hidden=8", "hardware.workers=1", "--trials", "2"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


@pytest.mark.slow
def test_two_systems_are_tuned_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tune", "tuning", *TINY, "hardware.threads=1", "--jobs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["systems"]
    for one in found:
        assert one["trials"] == 2 and one["seconds"] > 0 and 0 < one["best"] <= 1
        system = one["system"].removesuffix("_digits")
        made = compose([f"system={system}", f"train={Path(one['preset']).stem}"]).config
        assert made["optimizer"]["lr"] == float(one["values"]["optimizer.lr"])
    assert [one["system"] for one in found] == ["dgl_digits", "gsplit_digits"]


@pytest.mark.slow
def test_twelve_trials_of_two_systems_give_presets_and_equal_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    """The sweep `tuning` as it is."""
    assert run_command(["tune", "tuning", "tracker=none"]) == 0
    assert "equal budgets (12 trials each)" in capsys.readouterr().out
    assert {file.name for file in Path("conf/train").iterdir()} == {"tuned_dgl_digits.yaml", "tuned_gsplit_digits.yaml"}
    for system in ("dgl", "gsplit"):
        assert 0.001 <= compose([f"system={system}", f"train=tuned_{system}_digits"]).config["optimizer"]["lr"] <= 0.1
    assert run_command(["report", "tuning"]) == 0
    assert "equal budgets (12 trials each)" in Path("reports/tuning/report.html").read_text()
    assert run_command(["tune", "tuning", "tracker=none"]) == 0 and "24 finished before" in capsys.readouterr().out
