"""The batch size of a configuration is that of a global batch, whatever it was given for."""

from __future__ import annotations

import pytest

from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of, global_batch_size


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["train.batch_size=1000"], 1000),
        (["train.batch_size=1000", "train.batch_of=rank", "hardware.workers=3"], 3000),
        (["train.batch_size=1024", "train.batch_of=full_graph", "dataset=dcsbm", "dataset.scale=0.125"], 128),
        (["train.batch_size=10", "train.batch_of=full_graph", "dataset=dcsbm", "dataset.scale=0.001"], 1),
        (["train.batch_size=10", "train.batch_of=full_graph", "dataset=digits"], 10),
        (["train.batch_size=null", "train.batch_of=rank", "hardware.workers=3"], None),
    ],
)
def test_what_a_batch_size_counts(overrides: list[str], expected: int | None) -> None:
    config = compose(overrides).config
    assert global_batch_size(config) == expected


@pytest.mark.parametrize(
    ("system", "batch_size", "fanouts", "lr"),
    [
        ("gsplit", 1024, [15, 15, 15], 0.001),
        ("p3", 1024, [15, 15, 15], 0.001),
        ("quiver", 1024, [15, 15, 15], 0.001),
        ("fastsample", 4000, [15, 10, 5], 0.006),
        ("distdgl", 4000, [15, 10, 5], 0.006),
    ],
)
def test_presets_have_their_papers_defaults(system: str, batch_size: int, fanouts: list[int], lr: float) -> None:
    """GSplit, section 6.1; FastSample, section 4 (1000 targets per rank)."""
    config = compose([f"system={system}", "hardware.workers=4", "model=gat"]).config
    experiment = experiment_of(config)
    rate = experiment.optimizer.trial.defaults["lr"]
    assert (experiment.train.batch_size, rate, config["sampler"]["fanouts"]) == (batch_size, lr, fanouts)
    assert (config["model"]["hidden"], config["model"]["layers"], config["model"]["heads"]) == (256, 3, 4)
