"""Configurations of older versions: they are read in today's form, and keys of runs use the form of the first version.

`as_today` and `as_first` are inverse for every configuration that an older version could have. Keys use the first form,
so finished runs keep their keys when a class or an option is moved or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Name of today by the first name.
MOVED: Mapping[str, str] = {
    "gnnexp.datasets.dcsbm.Dcsbm": "gnnexp.datasets.generated.dcsbm.Dcsbm",
    "gnnexp.datasets.rmat.Rmat": "gnnexp.datasets.generated.rmat.Rmat",
    "gnnexp.partitioners.dbh.DbhPartitioner": "gnnexp.partitioners.streams.dbh.DbhPartitioner",
    "gnnexp.partitioners.greedy.GreedyPartitioner": "gnnexp.partitioners.streams.greedy.GreedyPartitioner",
    "gnnexp.partitioners.hdrf.HdrfPartitioner": "gnnexp.partitioners.streams.hdrf.HdrfPartitioner",
    "gnnexp.partitioners.libra.LibraPartitioner": "gnnexp.partitioners.streams.libra.LibraPartitioner",
    "gnnexp.partitioners.restream.RestreamPartitioner": "gnnexp.partitioners.streams.restream.RestreamPartitioner",
    "gnnexp.partitioners.spring.SpringPartitioner": "gnnexp.partitioners.streams.spring.SpringPartitioner",
    "gnnexp.partitioners.two_ps_l.TwoPsLPartitioner": "gnnexp.partitioners.streams.two_ps_l.TwoPsLPartitioner",
}


def name_today(name: str) -> str:
    """The present dotted name of a class."""
    return MOVED.get(name, name)


def first_name(name: str) -> str:
    """The first dotted name of a class."""
    return next((first for first, today in MOVED.items() if today == name), name)


def with_first_names(node: object) -> Any:  # noqa: ANN401  as it came
    """A configuration, or a value of it, in which every `_target_` has its first name."""
    if isinstance(node, Mapping):
        return {key: first_name(value) if key == "_target_" and isinstance(value, str) else with_first_names(value)
                for key, value in node.items()}
    return [with_first_names(value) for value in node] if isinstance(node, (list, tuple)) else node


# Config keys of today by their earlier names.
KEYS = {"train.lr": "optimizer.lr", "train.weight_decay": "optimizer.weight_decay", "train.optimizer": "optimizer"}
# Optimizers by their name in `train.optimizer`, and whether their kernel was fused.
_OPTIMIZERS = {"adam": ("torch.optim.Adam", True), "adamw": ("torch.optim.AdamW", True),
               "sgd": ("torch.optim.SGD", False)}
# Options of `train` that were added later, with the values that change nothing.
_LATER = {"clip_norm": None, "steps_per_epoch": None, "patience": None, "stop_below": None, "matmul": "float32",
          "activations": "float32", "cuda_graph": False}
# Keys outside of groups that were added later.
_LATER_TOP = {"measure": "exact", "trace": None}
# Options of other groups, and of components in them, that were added later: by the class.
_LATER_OF: Mapping[str, Mapping[str, Any]] = {
    "gnnexp.datasets.gnnexp_format.GnnexpFormat": {"weights": True},
    "gnnexp.samplers.fused.FusedSampler": {"device": "auto", "tier": "auto"},
    "gnnexp.feature_stores.local.LocalStore": {"tier": "host", "dtype": None},
    "gnnexp.feature_stores.partitioned.PartitionedStore": {"dtype": None},
    "gnnexp.feature_stores.sliced.SlicedStore": {"dtype": None},
    "gnnexp.feature_stores.sharded_cache.ShardedCache": {"access": "auto"},
}
# Options whose default has changed and whose value changes no graph, with the value that keys have: by the class.
_KEYED_AS: Mapping[str, Mapping[str, Any]] = {
    "gnnexp.datasets.aminer.Aminer": {"verify": True},
    "gnnexp.datasets.planetoid.Planetoid": {"verify": True},
}
# Removed options with the only value that is still accepted, by group or by class of the group.
_GONE: Mapping[str, Mapping[str, Any]] = {
    "gnnexp.paradigms.model_averaging.ModelAveraging": {"optimizer_state": "kept"},
    "hardware": {"straggler": None},
}
# Messages about removed options that a user may still set.
GONE = {"hardware.straggler": "is gone: gnnexp slows no rank down any more"}


def as_today(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the groups and options of today.

    A removed option stays if its value is not the accepted one: the check of the configuration then reports it.
    """
    config, train = {group: _without(group, node, _GONE) for group, node in config.items()}, config.get("train")
    if "optimizer" in config or not isinstance(train, Mapping):
        return config
    word = train.get("optimizer", "adam")
    if word not in _OPTIMIZERS:
        return config
    moved = {key.partition(".")[2] for key in KEYS}
    return {**config, "train": {key: value for key, value in train.items() if key not in moved},
            "optimizer": _optimizer(word, train.get("lr", 0.003), train.get("weight_decay", 0.0)), "scheduler": None}


def as_first(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the first names of its classes and options; newer options stay."""
    config, train = with_first_names(config), config.get("train")
    if not isinstance(train, Mapping):
        return config
    first = {group: _with_gone(group, _without(group, node, _LATER_OF)) for group, node in config.items()}
    first = {group: _keyed(group, node) for group, node in first.items()}
    train = {key: value for key, value in train.items() if key not in _LATER or value != _LATER[key]}
    first = {key: value for key, value in first.items() if key not in _LATER_TOP or value != _LATER_TOP[key]}
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


def _known(group: str, node: object, options: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return options.get(str(node.get("_target_", group)), {}) if isinstance(node, Mapping) else {}


def _without(group: str, node: Any, options: Mapping[str, Mapping[str, Any]]) -> Any:  # noqa: ANN401  or a topmost value
    if not isinstance(node, Mapping):
        return node
    known = _known(group, node, options)
    return {key: _without(key, value, options) for key, value in node.items()
            if key not in known or value != known[key]}


def _with_gone(group: str, node: Any) -> Any:  # noqa: ANN401
    # A slow rank was always listed together with `throttle`: a profile without `throttle` had neither.
    gone = {} if group == "hardware" and "throttle" not in node else _known(group, node, _GONE)
    return {**gone, **node} if gone else node


def _keyed(group: str, node: Any) -> Any:  # noqa: ANN401
    known = _known(group, node, _KEYED_AS)
    return {key: known.get(key, value) for key, value in node.items()} if known else node
