"""A whole configuration checked before anything is launched: every problem at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gnnexp.config.build import build, check_fields, check_node
from gnnexp.config.schema import HardwareConfig, TrainConfig
from gnnexp.config.signature import TARGET, unknown
from gnnexp.errors import Problem, ProblemsError
from gnnexp.graph.graph import Graph

COMPONENTS = ("dataset", "partitioner", "sampler", "feature_store", "model", "task", "paradigm", "tracker")
SCALARS = ("seed", "system", "name")
_TOP = (*COMPONENTS, "hardware", "train", *SCALARS)


def check_config(config: Mapping[str, Any]) -> list[Problem]:
    """Everything wrong with a resolved configuration.

    Looks at keys, types, value ranges, what the constructors of the components refuse, and what the paradigm
    refuses of the whole (`paradigm.check(config)`).
    """
    problems = [unknown(key, config[key], key, _TOP) for key in config if key not in _TOP]
    problems += [problem for group in COMPONENTS for problem in check_node(group, config.get(group))]
    problems += check_fields("train", TrainConfig, config.get("train"))
    hardware = dict(config.get("hardware") or {})
    problems += check_node("hardware.launcher", hardware.pop("launcher", None))
    problems += check_fields("hardware", HardwareConfig, hardware)
    problems += _check_scalars(config)
    if problems:
        return problems  # ranges and conflicts can only be judged of values that have the right type
    problems += [*check_ranges(config), *_check_fanouts(config), *_check_straggler(config)]
    return [*problems, *_check_components(config)]


def _check_scalars(config: Mapping[str, Any]) -> list[Problem]:
    problems = []
    seed, name, system = config.get("seed"), config.get("name"), config.get("system")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        problems.append(Problem("seed", seed, "must be an integer, 0 <= seed < 2^63", "seed=0"))
    for key, value in (("name", name), ("system", system)):
        if value is not None and (not isinstance(value, str) or "/" in value or not value.isprintable()):
            problems.append(Problem(key, value, "must be a text without / (it names a folder), or null", f"{key}=null"))
    return problems


Rule = tuple[str, Callable[[Any], bool], str, str]

_RULES: tuple[Rule, ...] = (
    ("train.epochs", lambda v: v >= 1, "must be at least 1", "train.epochs=10"),
    ("train.batch_size", lambda v: v is None or v >= 1, "must be at least 1, or null for all training vertices",
     "train.batch_size=1024"),
    ("train.lr", lambda v: 0 < v < math.inf, "must be positive and finite", "train.lr=0.003"),
    ("train.weight_decay", lambda v: 0 <= v < math.inf, "must be 0 or positive, and finite", "train.weight_decay=0"),
    ("train.eval_every", lambda v: v >= 0, "must be 0 (only after the last epoch) or more", "train.eval_every=1"),
    ("train.eval_memory", lambda v: v >= 1, "must be a positive number of bytes", "train.eval_memory=4294967296"),
    ("hardware.nodes", lambda v: v >= 1, "must be at least 1", "hardware.nodes=1"),
    ("hardware.workers", lambda v: v >= 1, "must be at least 1", "hardware.workers=2"),
    ("hardware.threads", lambda v: v >= 0, "must be 0 (cores / workers) or more", "hardware.threads=0"),
    ("hardware.timeout_s", lambda v: 0 < v < math.inf, "must be positive and finite", "hardware.timeout_s=300"),
)


def check_ranges(config: Mapping[str, Any]) -> list[Problem]:
    """Values of `train` and `hardware` outside their ranges (types are right already)."""
    problems = []
    for key, holds, allowed, mend in _RULES:
        group, _, name = key.partition(".")
        if name in config[group] and not holds(config[group][name]):
            problems.append(Problem(key, config[group][name], allowed, mend))
    return problems


def _check_fanouts(config: Mapping[str, Any]) -> list[Problem]:
    fanouts, layers = config["sampler"].get("fanouts"), config["model"].get("layers")
    if not isinstance(fanouts, list) or not isinstance(layers, int) or len(fanouts) == layers:
        return []
    fitting = (fanouts + fanouts[-1:] * layers)[:layers] if fanouts else [10] * layers
    mend = f"sampler.fanouts={str(fitting).replace(' ', '')}, or model.layers={max(1, len(fanouts))}"
    return [Problem("sampler.fanouts", fanouts, f"needs one fanout per layer: model.layers={layers}", mend)]


def _check_straggler(config: Mapping[str, Any]) -> list[Problem]:
    straggler = config["hardware"].get("straggler")
    if straggler is None:
        return []
    ranks = config["hardware"].get("nodes", 1) * config["hardware"].get("workers", 1)
    problems = []
    if not 0 <= straggler["rank"] < ranks:
        problems.append(Problem("hardware.straggler.rank", straggler["rank"], f"must be 0..{ranks - 1}",
                                "hardware.straggler.rank=0"))
    if not 0 <= straggler["seconds"] < math.inf:
        problems.append(Problem("hardware.straggler.seconds", straggler["seconds"], "must be 0 or positive",
                                "hardware.straggler.seconds=0.05"))
    return problems


def _check_components(config: Mapping[str, Any]) -> list[Problem]:
    """What constructors refuse, and what the paradigm refuses of the whole."""
    nodes = {group: config[group] for group in COMPONENTS} | {"hardware.launcher": config["hardware"]["launcher"]}
    problems: list[Problem] = []
    for group, node in nodes.items():
        try:
            component = build(node)
        except ProblemsError as error:
            problems += [_under(group, node, problem) for problem in error.problems]
            continue
        if group in ("paradigm", "hardware.launcher") and hasattr(component, "check"):
            problems += list(component.check(config))
    return problems


def _under(group: str, node: Mapping[str, Any], problem: Problem) -> Problem:
    """The problem with its group in front, where a constructor named its own argument only."""
    own = problem.key in node and problem.key != TARGET
    return Problem(f"{group}.{problem.key}", problem.value, problem.allowed, problem.mend) if own else problem


def check_data(config: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """What fits neither the prepared data: too many workers, nothing to train on, batches of nothing."""
    hardware, problems = config["hardware"], []
    ranks = hardware.get("nodes", 1) * hardware.get("workers", 1)
    num_train = int(graph.splits.train.numel())
    links = bool(graph.links)
    if num_train == 0 and not links:
        problems.append(Problem("dataset", graph.name, "has no training vertices", "give it a train split"))
    elif num_train < ranks and not links:
        problems.append(Problem("hardware.workers", hardware["workers"],
                                f"more ranks ({ranks}) than training vertices ({num_train})",
                                f"hardware.workers={max(1, num_train // hardware.get('nodes', 1))}"))
    if graph.features is None:
        problems.append(Problem("dataset", graph.name, "has no vertex features", "add a file of features"))
    if graph.labels is None and not links:
        problems.append(Problem("dataset", graph.name, "has no labels", "add a file of labels"))
    return problems
