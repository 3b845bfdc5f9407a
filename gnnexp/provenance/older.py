"""Configurations of older versions: read as those of today, and keys of runs as the older versions would make them.

`as_today` and `as_first` are each other's inverse for every configuration that an older version could have. Keys are
made of the first form, so that an option that moved or went makes no finished run new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnexp.provenance.moved import with_first_names

# Config keys of today by those that they had before.
KEYS = {"train.lr": "optimizer.lr", "train.weight_decay": "optimizer.weight_decay", "train.optimizer": "optimizer"}
# What `train.optimizer` named, and whether its kernel was fused.
_OPTIMIZERS = {"adam": ("torch.optim.Adam", True), "adamw": ("torch.optim.AdamW", True),
               "sgd": ("torch.optim.SGD", False)}
# Options of `train` that came later, with the values that change nothing.
_LATER = {"clip_norm": None, "steps_per_epoch": None, "patience": None}
# Options that are gone, with the value that was left: by their group, or by the class of it.
_GONE: Mapping[str, Mapping[str, Any]] = {
    "gnnexp.paradigms.model_averaging.ModelAveraging": {"optimizer_state": "kept"},
    "hardware": {"straggler": None},
}
# What is said of those that a user may still set.
GONE = {"hardware.straggler": "is gone: gnnexp slows no rank down any more"}


def as_today(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the groups and options of today.

    An option that is gone stays where its value is another one than the one that was left: the check of the
    configuration then names it.
    """
    config, train = {group: _without_gone(group, node) for group, node in config.items()}, config.get("train")
    if "optimizer" in config or not isinstance(train, Mapping):
        return config
    word = train.get("optimizer", "adam")
    if word not in _OPTIMIZERS:
        return config
    moved = {key.partition(".")[2] for key in KEYS}
    return {**config, "train": {key: value for key, value in train.items() if key not in moved},
            "optimizer": _optimizer(word, train.get("lr", 0.003), train.get("weight_decay", 0.0)), "scheduler": None}


def as_first(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the first names of its classes and options; what an older version could not say stays."""
    config, train = with_first_names(config), config.get("train")
    if not isinstance(train, Mapping):
        return config
    first = {group: _with_gone(group, node) for group, node in config.items()}
    train = {key: value for key, value in train.items() if key not in _LATER or value != _LATER[key]}
    if first.get("scheduler", "") is None:
        first.pop("scheduler")
    node = first.get("optimizer")
    if isinstance(node, Mapping):
        lr, decay = node.get("lr"), node.get("weight_decay")
        if word := next((word for word in _OPTIMIZERS if node == _optimizer(word, lr, decay)), None):
            train |= {"optimizer": word, "lr": lr, "weight_decay": decay}
            first.pop("optimizer")
    return {**first, "train": train}


def _optimizer(word: str, lr: object, weight_decay: object) -> dict[str, Any]:
    target, fused = _OPTIMIZERS[word]
    return {"_target_": target, "_partial_": True, "lr": lr, "weight_decay": weight_decay,
            **({"fused": True} if fused else {})}


def _gone_from(group: str, node: object) -> Mapping[str, Any]:
    return _GONE.get(str(node.get("_target_", group)), {}) if isinstance(node, Mapping) else {}


def _without_gone(group: str, node: Any) -> Any:  # noqa: ANN401  a group, or one of the topmost values
    gone = _gone_from(group, node)
    return {key: value for key, value in node.items() if key not in gone or value != gone[key]} if gone else node


def _with_gone(group: str, node: Any) -> Any:  # noqa: ANN401
    # A slow rank was always listed with `throttle`: a profile without one had not the other either.
    gone = {} if group == "hardware" and "throttle" not in node else _gone_from(group, node)
    return {**gone, **node} if gone else node
