"""What the component of a group is: the class that its `_target_` inherits from.

The classes are named here and imported when somebody asks: `config` lies below the packages that define them, and
paradigms and partitioners, which look at each other's options, do not import each other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

KINDS = {
    "dataset": "gnnexp.datasets.base.Dataset",
    "partitioner": "gnnexp.partitioners.base.Partitioner",
    "sampler": "gnnexp.samplers.base.Sampler",
    "feature_store": "gnnexp.feature_stores.base.FeatureStore",
    "model": "gnnexp.models.model.Model",
    "task": "gnnexp.tasks.base.Task",
    "paradigm": "gnnexp.paradigms.base.Paradigm",
    "tracker": "gnnexp.trackers.base.Tracker",
    "hardware.launcher": "gnnexp.launchers.base.Launcher",
}
LAUNCHER = "hardware.launcher"
# What stands in the place of a component that cannot be made, while the others are judged: they look at little of it.
STAND_INS = {
    "dataset": "gnnexp.datasets.digits.Digits",
    "partitioner": "gnnexp.partitioners.random.RandomPartitioner",
    "tracker": "gnnexp.trackers.none.NoTracker",
    LAUNCHER: "gnnexp.launchers.local.LocalLauncher",
}
COMPONENTS = tuple(group for group in KINDS if "." not in group)


def kind_of(group: str) -> type[Any]:
    """The class of which the component of `group` (`sampler`, `hardware.launcher`) must be."""
    module, _, name = KINDS[group].rpartition(".")
    kind: type[Any] = getattr(import_module(module), name)
    return kind
