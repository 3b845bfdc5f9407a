"""What papers claim is in their words, and says what it expects."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "gnnexp" / "reports" / "claims"
TEXTS = Path(os.environ.get("GNNEXP_DATA", "")).resolve().parent / "papers"
FILES = sorted(FOLDER.glob("*.yaml"))
FIELDS = {"claim", "says", "source", "kind", "depends_on_hardware", "systems", "datasets", "models", "expects",
          "measure"}


def claims(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_every_paper_claims_something() -> None:
    assert [file.stem for file in FILES] == ["fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn"]
    names = [claim["claim"] for file in FILES for claim in claims(file)]
    assert len(names) == len(set(names)) > 80


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not beside GNNEXP_DATA")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_claims_are_quoted(file: Path) -> None:
    text = flat((TEXTS / f"{file.stem}.txt").read_text(encoding="utf-8"))
    for claim in claims(file):
        assert flat(claim["says"]) in text, claim["claim"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_claims_are_whole(file: Path) -> None:
    for claim in claims(file):
        assert set(claim) - {"note", "check", "why"} == FIELDS, claim["claim"]
        assert claim["kind"] in ("count", "memory", "accuracy", "time"), claim["claim"]
        expects = claim["expects"]
        assert expects["statistic"] in ("ratio", "reduction_pct", "difference", "value"), claim["claim"]
        assert set(expects) <= {"statistic", "low", "high", "mean", "better"}, claim["claim"]
        assert expects["better"] in ("lower", "higher"), claim["claim"]
        assert expects["low"] is None or expects["high"] is None or expects["low"] <= expects["high"], claim["claim"]
