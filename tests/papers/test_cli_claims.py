"""`gnnexp claims` from the runs of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command


@pytest.mark.parametrize("named", [["fastsample", "gsplit"], pytest.param([], marks=pytest.mark.slow)])
def test_every_paper_has_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: list[str]
) -> None:
    """Those that are named, or all."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["claims", *named]) == 0
    text = capsys.readouterr().out
    assert {file.stem for file in (tmp_path / "reports" / "claims").glob("*.csv")} == {
        *(named or ("fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn"))
    }
    assert "claims of gsplit" in text and "saved: reports/claims/gsplit.md" in text


def test_an_unknown_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["claims", "gsplitt"]) == 2
    assert "gsplit" in capsys.readouterr().err
