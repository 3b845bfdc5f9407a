"""A whole configuration checked before anything is launched: every problem at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gnnexp.errors import Problem, ProblemsError, unique
from gnnexp.experiment.build import build, check_fields, check_node
from gnnexp.experiment.kinds import KINDS, kind_of
from gnnexp.experiment.schema import MOST_COUNTED, HardwareConfig, TrainConfig
from gnnexp.experiment.seen import as_seen
from gnnexp.experiment.signature import TARGET, unknown
from gnnexp.graph.graph import Graph

COMPONENTS = tuple(group for group in KINDS if "." not in group)
SCALARS = ("seed", "system", "name", "preflight")
# How strictly the preflight is taken.
PREFLIGHT = ("refuse", "warn", "off")
# Components with `check(config)`: what they refuse of the other groups.
_JUDGES = ("model", "feature_store", "paradigm", "partitioner", "hardware.launcher")
# What they do not look at: a mistake there leaves them right.
_ALONE = {"dataset", "tracker", "name", "seed", "preflight"}
_TOP = (*COMPONENTS, "hardware", "train", *SCALARS)
# What components read of `hardware` and `train`, as these groups' files have it.
_READ = {"hardware": ("nodes", "workers", "device"), "train": ("batch_size", "dtype", "eval_every")}


def check_config(
    config: Mapping[str, Any], *, known: Iterable[Problem] = (), unsure: Collection[str] = ()
) -> list[Problem]:
    """Everything wrong with a resolved configuration.

    Looks at keys, types, value ranges, what the constructors of the components refuse, and what models and the
    paradigm refuse of the whole (`check(config)`). What depends on something that is wrong is not judged.

    Args:
        config: resolved.
        known: problems that were found before, with the overrides.
        unsure: groups whose content was not asked for.
    """
    known = list(known)
    problems = [unknown(key, config[key], key, _TOP) for key in config if key not in _TOP]
    for group in COMPONENTS:
        if group not in unsure:
            problems += check_node(group, config.get(group), kind_of(group))
    problems += check_fields("train", TrainConfig, config.get("train"))
    hardware = dict(config.get("hardware") or {})
    launcher = hardware.pop("launcher", None)
    if "hardware" not in unsure:
        problems += check_node("hardware.launcher", launcher, kind_of("hardware.launcher"))
    problems += check_fields("hardware", HardwareConfig, hardware)
    problems += _check_read(config)
    problems += [problem for problem in _check_scalars(config) if problem.key not in unsure]
    # Ranges and conflicts can only be judged of values that have the right type. A value that is needed and not given
    # (`???`) is known, and has none.
    wrong = {problem.key for problem in problems}
    problems = _without(problems, {problem.key for problem in known})
    bad = {_group_of(problem.key) for problem in [*known, *problems]} | set(unsure)
    later = _without(check_ranges(config, wrong), wrong)
    if not bad & {"sampler", "model", "train", "system"}:
        later += _check_fanouts(config)
    if not bad & {"hardware", "task", "train"}:
        later += _check_straggler(config)
    in_doubt = ({_group_of(key) for key in wrong} | set(unsure)) - _ALONE
    later += _check_components(config, bad, whole=not in_doubt)
    return [*problems, *later]


def _group_of(key: str) -> str:
    return key.partition(".")[0].lstrip("+~")


def _without(problems: list[Problem], keys: Collection[str]) -> list[Problem]:
    return [problem for problem in problems if problem.key not in keys]


def _check_read(config: Mapping[str, Any]) -> list[Problem]:
    """Keys that were deleted, or that a file leaves out, although others read them."""
    return [
        Problem(f"{group}.{name}", None, "this key is needed", f"add {group}.{name}=…")
        for group, names in _READ.items() if isinstance(config.get(group), Mapping)
        for name in names if name not in config[group]
    ]


def _check_scalars(config: Mapping[str, Any]) -> list[Problem]:
    problems = []
    seed, name, system = config.get("seed"), config.get("name"), config.get("system")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        problems.append(Problem("seed", seed, "must be an integer, 0 <= seed < 2^63", "seed=0"))
    if (preflight := config.get("preflight", "refuse")) not in PREFLIGHT:
        problems.append(unknown("preflight", preflight, str(preflight), PREFLIGHT, "preflight="))
    for key, value in (("name", name), ("system", system)):
        if value is not None and (not isinstance(value, str) or "/" in value or not value.isprintable()):
            problems.append(Problem(key, value, "must be a text without / (it names a folder), or null", f"{key}=null"))
    return problems


# More fanouts than this help nobody who reads them.
_MOST_SHOWN = 20
# Thirty years: the clocks of the system take no more than some centuries. The threads that one process may start.
LONGEST_S, MOST_THREADS = 10**9, 1 << 15
_MOST_WHOLE = (1 << 63) - 1

Rule = tuple[str, Callable[[Any], bool], str, str]

_RULES: tuple[Rule, ...] = (
    ("train.epochs", lambda v: v >= 1, "must be at least 1", "train.epochs=10"),
    ("train.batch_size", lambda v: v is None or v >= 1, "must be at least 1, or null for all training vertices",
     "train.batch_size=1024"),
    ("train.lr", lambda v: 0 < v < math.inf, "must be positive and finite", "train.lr=0.003"),
    ("train.weight_decay", lambda v: 0 <= v < math.inf, "must be 0 or positive, and finite", "train.weight_decay=0"),
    ("train.eval_every", lambda v: v is None or v >= 0, "must be 0 (after the last epoch only), more, or null (never)",
     "train.eval_every=1"),
    ("train.eval_memory", lambda v: v >= 1, "must be a positive number of bytes", "train.eval_memory=4294967296"),
    ("train.checkpoint_every", lambda v: v >= 0, "must be 0 (only when asked to by a signal) or more",
     "train.checkpoint_every=1"),
    ("train.checkpoints_kept", lambda v: v >= 1, "must be at least 1", "train.checkpoints_kept=2"),
    *((f"hardware.{name}", lambda v: 1 <= v <= MOST_COUNTED, f"must be at least 1, and at most {MOST_COUNTED:,}",
       f"hardware.{name}={usual}") for name, usual in (("nodes", 1), ("workers", 2))),
    ("hardware.threads", lambda v: 0 <= v <= MOST_THREADS, f"must be 0 (cores / workers) or more, up to {MOST_THREADS}",
     "hardware.threads=0"),
    ("hardware.device_memory", lambda v: v is None or v >= 1, "must be a positive number of bytes, or null",
     "hardware.device_memory=null"),
    ("hardware.timeout_s", lambda v: 0 < v <= LONGEST_S, f"must be positive, and at most {LONGEST_S:,} s",
     "hardware.timeout_s=300"),
    ("hardware.throttle", lambda v: v is None or 0 < v < math.inf, "must be positive bytes per second, or null",
     "hardware.throttle=null"),
    ("hardware.max_restarts", lambda v: v >= 0, "must be 0 or more", "hardware.max_restarts=0"),
    *((f"hardware.{name}", lambda v: v is None or 0 < v < math.inf, "must be positive and finite, or null",
       f"hardware.{name}=null") for name in (
           "flops", "flops_tf32", "gather", "l2", "stream", "sampling", "host_memory")),
    *((f"hardware.{name}", lambda v: v is None or 0 <= v < math.inf, "must be 0 or positive and finite, or null",
       f"hardware.{name}=null") for name in ("latency", "step_s", "launch_s")),
)


def check_ranges(config: Mapping[str, Any], mistyped: Collection[str] = ()) -> list[Problem]:
    """Values of `train` and `hardware` outside their ranges, but for those of the wrong type."""
    problems = []
    for key, holds, allowed, mend in _RULES:
        group, _, name = key.partition(".")
        if key in mistyped or group in mistyped or name not in config[group]:
            continue
        if type(config[group][name]) is int and config[group][name] > _MOST_WHOLE:
            size = f"{config[group][name].bit_length()} bits"
            problems.append(Problem(key, size, f"must be a whole number of at most {_MOST_WHOLE:,}", mend))
        elif not holds(config[group][name]):
            problems.append(Problem(key, config[group][name], allowed, mend))
    links = {} if {"hardware", "hardware.links"} & set(mistyped) else config["hardware"].get("links") or {}
    return problems + [
        Problem(key, value, "must be positive bytes per second and finite, or null", f"{key}=null")
        for name, value in links.items()
        if (key := f"hardware.links.{name}") not in mistyped and value is not None and not 0 < value < math.inf]


def _check_fanouts(config: Mapping[str, Any]) -> list[Problem]:
    fanouts, layers = config["sampler"].get("fanouts"), config["model"].get("layers")
    if not isinstance(fanouts, list) or not isinstance(layers, int) or layers < 1 or len(fanouts) == layers:
        return []
    mend = f"model.layers={max(1, len(fanouts))}"
    if layers <= _MOST_SHOWN:
        fitting = (fanouts + fanouts[-1:] * layers)[:layers] if fanouts else [10] * layers
        mend = f"sampler.fanouts={str(fitting).replace(' ', '')}, or {mend}"
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
    if straggler["phase"] in ("negatives", "decode") and config["task"]["_target_"].endswith(".NodeClassification"):
        problems.append(Problem("hardware.straggler.phase", straggler["phase"], "classes of vertices need neither "
                                "negatives nor a decoder", "hardware.straggler.phase=loss, or task=link_prediction"))
    if straggler["phase"] in ("sample", "negatives", "load") and config["train"].get("overlap"):
        problems.append(Problem("hardware.straggler.phase", straggler["phase"], "with train.overlap=true batches are "
                                "prepared in the background, which is not delayed", "set train.overlap=false"))
    if not 0 <= straggler["seconds"] < math.inf:
        problems.append(Problem("hardware.straggler.seconds", straggler["seconds"], "must be 0 or positive",
                                "hardware.straggler.seconds=0.05"))
    return problems


def _check_components(config: Mapping[str, Any], bad: Collection[str], *, whole: bool) -> list[Problem]:
    """What constructors refuse and, if `whole` can be judged, what components refuse of it."""
    nodes = {group: config[group] for group in COMPONENTS if group not in bad}
    if "hardware" not in bad:
        nodes["hardware.launcher"] = config["hardware"]["launcher"]
    problems: list[Problem] = []
    built: dict[str, Any] = {}
    for group, node in nodes.items():
        try:
            built[group] = build(node, kind_of(group))
        except ProblemsError as error:
            problems += [_under(group, node, problem) for problem in error.problems]
    if whole:
        found = [problem for group in _JUDGES if hasattr(built.get(group), "check")
                 for problem in built[group].check(config)]
        # A key that was mistyped in such a group may be the one that would mend it.
        problems += [problem for problem in found if _group_of(problem.key) not in bad]
    return unique(problems)


def _under(group: str, node: Mapping[str, Any], problem: Problem) -> Problem:
    """The problem with its group in front, where a constructor named its own argument only."""
    own = problem.key in node and problem.key != TARGET
    return Problem(f"{group}.{problem.key}", problem.value, problem.allowed, problem.mend) if own else problem


def check_data(config: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """What does not fit the prepared data: too many workers, nothing to train on, a metric for other labels."""
    hardware, problems = config["hardware"], []
    ranks = hardware.get("nodes", 1) * hardware.get("workers", 1)
    num_train = int(graph.splits.train.numel())
    if 0 < num_train < ranks and not graph.links:
        problems.append(Problem("hardware.workers", hardware["workers"],
                                f"more ranks ({ranks}) than training vertices ({num_train})",
                                f"hardware.workers={max(1, num_train // hardware.get('nodes', 1))}"))
    seen = as_seen(config, graph)
    if seen.features is None:
        problems.append(Problem("dataset", graph.name, "has no vertex features",
                                "choose feature_store=embedding, or another dataset"))
    task = build(config["task"], kind_of("task"))
    others = [build(config[group], kind_of(group)) for group in ("feature_store", "model", "paradigm")
              if group in config]
    found = [problem for one in others if hasattr(one, "check_data") for problem in one.check_data(config, seen)]
    return [*problems, *task.check(graph), *found]
