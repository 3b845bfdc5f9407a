"""Folders that a run would be made in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.running.folders import folder_problems


@pytest.mark.parametrize("target", ["nowhere", "link"], ids=["gone", "loop"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    (problem,) = folder_problems("hydra.run.dir", tmp_path / "link" / "run")
    assert f"{tmp_path / 'link'} is a link that leads nowhere ({target})" in problem.allowed


def test_a_file_and_a_link_to_one_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for place in ("file", "link"):
        (problem,) = folder_problems("hydra.run.dir", tmp_path / place / "run")
        assert "is no folder" in problem.allowed
