"""The papers' claims as a distribution: its entry points, its version, its wheel."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from wheels import build_both, files_of

from gnnexp.reports.claims import GROUP, installed_papers, load_claims
from gnnexp_papers.claim import claiming_papers, claims_of
from gnnexp_papers.paper import PaperClaims

ROOT = Path(__file__).parents[2]


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_file_of_claims_is_an_entry_point() -> None:
    """And what is installed is what pyproject.toml says, or `make setup` was forgotten."""
    named = project(ROOT / "papers")["entry-points"][GROUP]
    assert tuple(named) == claiming_papers()
    for paper, value in named.items():
        entry = EntryPoint(paper, value, GROUP)
        assert load_claims(paper, {"gnnexp-papers": entry}) == PaperClaims(paper)
        assert entry in installed_papers()[paper].values()


def test_the_sweeps_of_a_paper_are_those_of_its_checks() -> None:
    claims = PaperClaims("gsplit")
    assert set(claims.sweeps) >= {sweep for claim in claims_of("gsplit") if claim.check for sweep in claim.check.sweeps}
    verdicts = claims.verdicts({})
    assert len(verdicts.table.rows) == len(claims_of("gsplit")) == sum(verdicts.counts.values())
    assert set(verdicts.counts) == {"not run"}


def test_it_goes_with_exactly_this_gnnexp() -> None:
    ours, papers = project(ROOT), project(ROOT / "papers")
    assert papers["version"] == ours["version"] and f"gnnexp=={ours['version']}" in papers["dependencies"]
    assert papers["requires-python"] == ours["requires-python"]


@pytest.mark.interpreter
def test_its_wheel_carries_every_file(tmp_path: Path) -> None:
    wheel, from_sdist = build_both(ROOT / "papers", tmp_path)
    files = [file for file in (ROOT / "papers" / "gnnexp_papers").rglob("*") if file.is_file()]
    assert set(files_of(wheel)) == {
        str(file.relative_to(ROOT / "papers")) for file in files if "__pycache__" not in file.parts
    }
    assert files_of(from_sdist) == files_of(wheel)
