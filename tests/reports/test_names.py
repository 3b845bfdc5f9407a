"""Reports are of any paper: what one of them says lies in its folder of sweeps/, and the package names none."""

from __future__ import annotations

from pathlib import Path

import gnnexp.reports
from gnnexp.config.folders import papers_with

SPELT = {"neutrontp": ("neutron",), "sdt_gnn": ("sdt_gnn", "sdt-gnn", "sdtgnn")}


def test_no_paper_is_named() -> None:
    words = [word for paper in papers_with("published.csv") for word in SPELT.get(paper, (paper,))]
    assert len(words) == 7
    folder = Path(gnnexp.reports.__path__[0])
    files = [file for suffix in (".py", ".sql") for file in folder.rglob(f"*{suffix}")]
    assert len(files) > 30
    assert [(file.name, word) for file in files for word in words if word in file.read_text().lower()] == []
