"""`gnnexp partition` of a partitioner that samples batches first."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command


def test_data_without_labels_has_no_batches_to_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    Path("edges.txt").write_text("0 1\n1 2\n2 3\n3 0\n")
    words = ["dataset=edge_list", "dataset.path=edges.txt", "hardware.workers=2"]
    assert run_command(["partition", "system=gsplit", *words]) == 2
    assert "has no vertex labels" in capsys.readouterr().err
    assert run_command(["partition", "system=gsplit", "partitioner=range", *words]) == 0
