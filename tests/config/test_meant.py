"""Names that other libraries have for keys: a hint is shown only if it is right in this configuration."""

from __future__ import annotations

import pytest

from gnnexp.config.compose import draft
from gnnexp.config.meant import MEANT, meant


def fix_of(*overrides: str) -> str:
    (problem,) = draft(overrides).problems
    return str(problem.fix)


_BF16 = "train.matmul=bf16 rounds products, train.activations=bf16 the rows between layers"


@pytest.mark.parametrize(
    ("overrides", "fix"),
    [
        (["model=gat", "model.num_heads=8"], "did you mean model.heads=8? heads are of model=gat"),
        (["model.num_heads=8"], "heads are of model=gat"),
        (["model=gcn", "model.num_layers=2"], "did you mean model.layers=2?"),
        (["hardware.gpus=2"], "did you mean hardware.workers=2?"),
        (["train.amp=true"], f"did you mean train.activations=bf16? {_BF16}"),
        (["train.amp=float64"], f"did you mean train.dtype=float64 or train.activations=bf16? {_BF16}"),
        (["precision=float64"], f"did you mean train.dtype=float64 or train.activations=bf16? {_BF16}"),
        (["train.compile=true"], "nothing to turn on: kernels are compiled (model.kernel)"),
        (["sampler.num_workers=2"], "did you mean sampler.threads=2? ranks are hardware.workers"),
        (["train.num_nodes=2"], "hardware=slurm_cpu and slurm_gpu have several"),
        (["tracker.project=x"], "did you mean tracker.experiment=x?"),
        (["train.scheduler=cosine"], "did you mean scheduler=cosine?"),
        (["train.epoch=5"], "did you mean train.epochs?"),
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


# Values for the keys that take no null, and what is chosen with them.
_VALUES = {"sampler.fanouts": "[5,5,5]", "sampler.threads": "2", "train.clip_norm": "1.0", "scheduler": "cosine"}
_CONTEXTS = (["model=sage"], ["model=gat"], ["dataset=planetoid", "dataset.name=cora"], ["hardware=slurm_cpu"])


@pytest.mark.parametrize("name", MEANT)
def test_the_table_names_keys_that_some_configuration_has(name: str) -> None:
    """And no key that a configuration has is in it: its hint would never be shown."""
    assert MEANT[name].keys or MEANT[name].further
    for line in meant(name):
        full = line if "=" in line else f"{line}={_VALUES.get(line, 'null')}"
        assert any(not draft([*context, full]).problems for context in _CONTEXTS), line
    assert draft([f"train.{name}=1"]).problems
