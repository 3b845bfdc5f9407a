"""The planted mistakes of `benchmarks/mutants.toml` follow the code, so that they can be planted at any time."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MUTANTS = tomllib.loads((ROOT / "benchmarks" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]


@pytest.fixture(scope="module")
def sources() -> str:
    return "\0".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "gnnexp").rglob("*.py")))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_a_mutant_is_one_edit_and_names_tests_that_exist(sources: str, mutant: dict[str, Any]) -> None:
    assert sources.count(mutant["old"]) == 1 and mutant["new"] != mutant["old"]
    assert mutant["tests"] and all((ROOT / test).exists() for test in mutant["tests"])


def test_there_are_sixty_mutants_of_different_names() -> None:
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS) >= 60
