"""Distributions that a test installs: metadata in a folder on `sys.path`, and nothing else is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.provenance import installed

Install = Callable[..., None]


def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str) -> Install:
    """A function that installs a distribution by its name with entry points of a group, into `tmp_path/site`.

    The current folder becomes an empty one. Distributions outside of `tmp_path` are not seen.
    """
    site, here, search = tmp_path / "site", tmp_path / "here", installed.metadata_folders
    for folder in (site, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(installed, "metadata_folders", lambda: (at for at in search() if at.is_relative_to(tmp_path)))

    def install(name: str, folder: Path = site, **entries: str) -> None:
        metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        tops = {value.split(":")[0].split(".")[0] for value in entries.values()}
        (metadata / "top_level.txt").write_text("\n".join(tops) + "\n")
        lines = [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")

    return install
