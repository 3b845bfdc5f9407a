"""`gnnexp claims` from the runs of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command


def test_every_paper_has_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["claims"]) == 0
    text = capsys.readouterr().out
    assert {file.stem for file in (tmp_path / "reports" / "claims").glob("*.csv")} == {
        "fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn"}
    assert "claims of gsplit" in text and "saved: reports/claims/gsplit.md" in text


def test_an_unknown_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["claims", "gsplitt"]) == 2
    assert "gsplit" in capsys.readouterr().err
