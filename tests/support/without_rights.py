"""A file system that keeps no rights, as FAT or disks of Windows in WSL: it takes each `mkdir`, and shows others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def show(monkeypatch: pytest.MonkeyPatch, place: Path, *, mode: int = 0o755, owner: int | None = None) -> None:
    """Let everything below `place` have these rights, whatever was asked for, and this owner."""
    real = Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:
        found = real(self, **options)
        if not self.is_relative_to(place):
            return found
        kind, uid = found.st_mode & ~0o777, found.st_uid if owner is None else owner
        return os.stat_result((kind | mode, *found[1:4], uid, *found[5:10]))

    monkeypatch.setattr(Path, "stat", stat)
