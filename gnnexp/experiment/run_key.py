"""The key by which a run is recognised: runs with equal keys have equal results.

It has names and versions of components, and only options that differ from their defaults. So it stays the same if a
class moves or is renamed, and if an option with a default is added. A default that changes needs a raised version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gnnexp.components.locate import locate
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.signature import TARGET, decisive, parameters_of
from gnnexp.experiment.shape import is_node, kinds_of, options_in
from gnnexp.provenance.code import RunCode
from gnnexp.provenance.names import name_of, version_of
from gnnexp.provenance.recorded import RESULT_VERSION

# Groups and keys that change neither a result nor its time.
_WITHOUT_RESULTS = ("tracker", "name", "preflight")
_OF_HARDWARE = (
    "launcher",
    "timeout_s",
    "max_restarts",
    "detach",
    "sampling",
    "latency",
    "flops_tf32",
    "l2",
    "launch_s",
)
_OF_LINKS = ("d2h", "duplex", "h2d_gather")
_OF_TRAIN = ("checkpoint_every", "checkpoints_kept")
_SCALARS = {"measure": "exact", "trace": None, "system": None, "scheduler": None}


def run_key(config: Mapping[str, Any], dataset_key: str, code: RunCode, inputs: Mapping[str, str] | None = None) -> str:
    """The key of a run, made of its configuration, data and the user's code; 32 hexadecimal digits.

    The places of records and files are no part of it. Neither is the machine: a run of another machine is found, and
    its machine is named (`gnnexp.provenance.machine`).

    Args:
        config: resolved configuration, whose components can be imported.
        dataset_key: key of the data's content.
        code: code that the run executes (`code_of_config`).
        inputs: digests of files that components other than the dataset read, by config key.

    Raises:
        ImportError: the class of a component cannot be imported.
    """
    content = {
        "result": RESULT_VERSION,
        "config": keyed(config),
        "data": dataset_key,
        "code": dict(code.own),
        "inputs": dict(inputs or {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def keyed(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a resolved configuration decides results, by group."""
    content = {group: _group(group, node) for group, node in config.items() if group not in _WITHOUT_RESULTS}
    return {group: value for group, value in content.items() if group not in _SCALARS or value != _SCALARS[group]}


def _group(group: str, node: Any) -> Any:  # noqa: ANN401  or a topmost value
    if group == "hardware":
        kept = _without(node, _OF_HARDWARE)
        links = kept.get("links")
        return _fields({**kept, "links": _without(links, _OF_LINKS)} if links else kept, HardwareConfig)
    if group == "train":
        return _fields(_without(node, _OF_TRAIN), TrainConfig)
    if group == "optimizer" or not is_node(node):  # torch's own classes: as they are written
        return node
    return component_in_key(node, _unkeyed(node) if group == "dataset" else ())


def component_in_key(node: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The mapping of a component as it is in keys: name, version, and options that differ from their defaults.

    Args:
        node: the mapping, with `_target_`.
        without: options that do not count.

    Raises:
        ImportError: its class, or the class of a component in it, cannot be imported.
    """
    target = locate(node[TARGET])
    options = _options(_without(node, (TARGET, *without)), target)
    return {"name": name_of(node[TARGET]), "version": version_of(target), "options": options}


def _options(node: Mapping[str, Any], target: Callable[..., Any]) -> dict[str, Any]:
    allowed = parameters_of(target)
    return {key: _value(value, kinds_of(allowed, key)) for key, value in decisive(node, target).items()}


def _value(value: Any, kinds: tuple[type, ...]) -> Any:  # noqa: ANN401  as it came
    if is_node(value) and kinds:
        return component_in_key(value)
    kind = options_in(value, kinds)
    return value if kind is None else _fields(value, kind)


def _fields(node: Any, kind: type) -> Any:  # noqa: ANN401  a mapping, or nothing
    return _options(node, kind) if isinstance(node, Mapping) else node


def _without(node: Any, keys: Collection[str]) -> dict[str, Any]:  # noqa: ANN401  a mapping, or nothing
    return {key: value for key, value in (node or {}).items() if key not in keys}


def _unkeyed(node: Mapping[str, Any]) -> Collection[str]:
    """Options of a dataset that do not change its graph; the key of the data has the others, and the bytes."""
    return ("path", *getattr(locate(node[TARGET]), "unkeyed", ()))
