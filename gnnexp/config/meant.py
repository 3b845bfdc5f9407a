"""Names that other libraries and earlier versions have for keys and choices of gnnexp, and what they mean here.

One line per name. A hint is shown only if it composes with the rest of the command (`gnnexp.config.overrides`).
"""

from __future__ import annotations

from collections.abc import Mapping

# By key, or by `group=choice`: keys that take the typed value, `key=value`, or `group=choice`.
MEANT: Mapping[str, tuple[str, ...]] = {
    "model.num_heads": ("model.heads",),
    "model.nheads": ("model.heads",),
    "model.num_layers": ("model.layers",),
    "model.hidden_dim": ("model.hidden",),
    "model.hidden_channels": ("model.hidden",),
    "hardware.gpus": ("hardware.workers",),
    "hardware.num_gpus": ("hardware.workers",),
    "hardware.num_workers": ("hardware.workers",),
    "hardware.world_size": ("hardware.workers",),
    "train.amp": ("train.dtype", "train.activations=bf16"),
    "train.precision": ("train.dtype", "train.activations=bf16"),
    "train.early_stopping": ("train.patience",),
    "train.num_epochs": ("train.epochs",),
}


def meant(word: str, value: str = "") -> tuple[str, ...]:
    """The overrides that a key or `group=choice` stands for, with the typed `value`; empty if it is unknown."""
    found = MEANT.get(word.lower(), ())
    return tuple(one if "=" in one or not value else f"{one}={value}" for one in found)
