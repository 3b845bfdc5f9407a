"""Names that other libraries have for keys: a hint is shown only if it is right in this configuration."""

from __future__ import annotations

import pytest

from gnnexp.config.compose import draft
from gnnexp.config.meant import MEANT, meant


def fix_of(*overrides: str) -> str:
    (problem,) = draft(overrides).problems
    return str(problem.fix)


@pytest.mark.parametrize(
    ("overrides", "fix"),
    [
        (["model=gat", "model.num_heads=8"], "did you mean model.heads=8?"),
        (["model.num_heads=8"], "choose one of them"),
        (["model=gcn", "model.num_layers=2"], "did you mean model.layers=2?"),
        (["hardware.gpus=2"], "did you mean hardware.workers=2?"),
        (["train.amp=true"], "did you mean train.activations=bf16?"),
        (["train.amp=float64"], "did you mean train.dtype=float64 or train.activations=bf16?"),
        (["train.early_stopping=5"], "did you mean train.patience=5?"),
    ],
)
def test_a_name_of_others_has_a_hint_where_it_is_right(overrides: list[str], fix: str) -> None:
    assert fix_of(*overrides) == fix


def test_a_key_of_another_group_is_not_proposed_if_it_does_not_take_the_value() -> None:
    """`train.activations` is a number format."""
    assert fix_of("model.activation=elu") == "choose one of them"
    assert fix_of("model=gat", "train.out_heads=2") == "did you mean model.out_heads=2?"


def test_a_slip_is_found_whatever_its_value() -> None:
    assert fix_of("model.hiden=x") == "did you mean model.hidden?"


@pytest.mark.parametrize("name", MEANT)
def test_the_table_names_keys_that_some_configuration_has(name: str) -> None:
    """And no key that a configuration has is in it: its hint would never be shown."""
    for line in meant(name):
        assert any(
            not draft([f"model={model}", line if "=" in line else f"{line}=null"]).problems for model in ("sage", "gat")
        ), line
    assert draft([f"{name}=1"]).problems
