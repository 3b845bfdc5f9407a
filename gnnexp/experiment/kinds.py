"""The base class of each group's components: the `_target_` of a group must inherit from it.

The classes are listed by name, and imported only when `kind_of` is called. The reason is the import order: `experiment`
is below the packages that define the classes. Paradigms and partitioners also read each other's options without an
import.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

KINDS = {
    "dataset": "gnnexp.datasets.base.Dataset",
    "partitioner": "gnnexp.partitioners.base.Partitioner",
    "sampler": "gnnexp.samplers.base.SamplerOptions",
    "feature_store": "gnnexp.feature_stores.base.FeatureStoreOptions",
    "model": "gnnexp.models.model.ModelOptions",
    "task": "gnnexp.tasks.base.TaskOptions",
    "paradigm": "gnnexp.experiment.experiment.Method",
    "tracker": "gnnexp.trackers.base.Tracker",
    "hardware.launcher": "gnnexp.launchers.base.Launcher",
}
LAUNCHER = "hardware.launcher"
COMPONENTS = tuple(group for group in KINDS if "." not in group)


def kind_of(group: str) -> type[Any]:
    """The base class of the components of `group` (`sampler`, `hardware.launcher`)."""
    module, _, name = KINDS[group].rpartition(".")
    kind: type[Any] = getattr(import_module(module), name)
    return kind
