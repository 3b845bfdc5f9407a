"""Names that gnnexp does not have: the hint is the nearest way, and it works."""

from __future__ import annotations

import pytest

from gnnexp.config.compose import draft
from gnnexp.config.elsewhere import ELSEWHERE, known_elsewhere
from gnnexp.config.folders import find_folders


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_nearest_way_composes_and_the_name_is_no_choice(name: str) -> None:
    known, (group, _, word) = ELSEWHERE[name], name.partition("=")
    assert word not in find_folders(None).choices(group)
    assert known.nearest or known.further
    assert not draft(list(known.nearest)).problems


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        ("system=pyg", "model=pyg; or its own code under gnnexp's sweeps: paradigm=external (docs/howto/external.md)"),
        ("model=hgt", "model=rgcn; or a layer of your own (docs/howto/layer.md)"),
        ("system=BNS-GCN", "system=neutronstar_comm; or its own code"),
        ("dataset=igb", "dataset=edge_list; or docs/howto/dataset.md"),
        ("task=graph_classification", "task=node_classification; or PyG trains on many small graphs"),
        ("tracker=wandb", "tracker=mlflow; or the record stays in files"),
    ],
)
def test_a_well_known_name_is_no_typing_mistake(typed: str, fix: str) -> None:
    (problem,) = draft([typed]).problems
    assert problem.fix.startswith("nearest: ") and fix in problem.fix
    assert "is not in gnnexp" in problem.allowed and "allowed: " in problem.allowed


def test_names_that_are_not_known_are_guessed_as_before() -> None:
    assert known_elsewhere("model", "sagee") is None
    (problem,) = draft(["model=sagee"]).problems
    assert problem.fix == "did you mean model=sage?"
