"""A SLURM of two virtual nodes for the tests of this folder, started once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cluster as slurm


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    """The cluster's script as a module; `SLURM_CONF` names the cluster while it runs."""
    if missing := slurm.missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    before = os.environ.get("SLURM_CONF")
    slurm.start()
    yield slurm
    slurm.stop()
    os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)
