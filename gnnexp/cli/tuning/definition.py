"""Reads the section `tune` of a sweep's file: what may vary, what is best, and the budget of each system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnnexp.cli.sweeping.definition import override_key, override_text
from gnnexp.components.signature import Parameter, key_problems, parameters_of_dataclass
from gnnexp.errors import Problem, Refusal

Objective = Literal["val_metric", "time_to_target"]
# The key through which pruning ends a run.
LIMITS = "train.stop_below"
# A budget of seconds alone ends here: a trial that cannot be trained takes no seconds.
MOST_TRIALS = 1000
_RANGE = {
    name: Parameter(name, hint, required=False)
    for name, hint in {"low": Any, "high": Any, "log": bool, "choices": list}.items()
}
_DISTRIBUTIONS = {"distributions": Parameter("distributions", Mapping, required=True)}
_EXAMPLES = "{low: 0.001, high: 0.1, log: true} or {choices: [16, 32]}"


@dataclass(frozen=True)
class Distribution:
    """The values that a key may have.

    Attributes:
        key: key of the configuration, or one of its groups.
        low, high: the first and the last number of a range. If both are integers, all values are integers.
        log: whether numbers are drawn evenly on a logarithmic scale.
        choices: the values as Hydra writes them; empty for a range.
    """

    key: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all numbers of the range are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[str, ...]:
        """The values that are checked before the first trial: all choices, or both ends of a range."""
        return self.choices or (str(self.low), str(self.high))


@dataclass(frozen=True)
class Tuning:
    """The section `tune` of a sweep's file.

    Attributes:
        distributions: the keys that trials vary.
        objective: `val_metric` (the best validation metric of a run) or `time_to_target` (seconds of training until
            the validation metric reaches `target`).
        target: value of the validation metric for `time_to_target`.
        trials: trials of each system; None: as many as `seconds` allows.
        seconds: seconds of training of each system; None: as many as `trials` need.
        seed: seed of the search. All systems use the same one.
        batch: trials of a system that are chosen at one time, and may run at the same time.
        pruner: `median` ends a trial that is worse than the median of earlier ones (`System.limits`); `none` ends none.
        warmup: number of first epochs after which `median` ends no trial.
    """

    distributions: tuple[Distribution, ...]
    objective: Objective = "val_metric"
    target: float | None = None
    trials: int | None = None
    seconds: float | None = None
    seed: int = 0
    batch: int = 4
    pruner: Literal["none", "median"] = "none"
    warmup: int = 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that trials vary."""
        return tuple(one.key for one in self.distributions)

    @property
    def budget(self) -> str:
        """The budget of each system in words."""
        trials = f"{self.trials} trial{'' if self.trials == 1 else 's'}"
        parts = [trials if self.trials else "", f"{self.seconds:g} s" if self.seconds else ""]
        return " or ".join(filter(None, parts)) + " of training" * bool(self.seconds)


def read_tuning(section: Mapping[str, Any], where: str = "tune") -> tuple[Tuning, list[Problem]]:
    """The section `tune` without its mistakes, and the problem of each mistake.

    Args:
        section: content of the section.
        where: name of the section in problems.
    """
    options = {str(key): value for key, value in section.items()}
    problems = key_problems(where, options, {**parameters_of_dataclass(Tuning), **_DISTRIBUTIONS})
    wrong = {problem.key.removeprefix(f"{where}.") for problem in problems}
    good = {key: value for key, value in options.items() if key not in wrong}
    ranges = good.pop("distributions", {})
    distributions, more = _distributions(ranges, f"{where}.distributions")
    if not ranges and "distributions" not in wrong:
        more.append(
            Problem(
                f"{where}.distributions",
                ranges,
                "must have at least one key",
                "optimizer.lr: {low: 0.001, high: 0.1, log: true}",
            )
        )
    problems += [
        *more,
        *_number_problems(good, where),
        *_goal_problems(good, wrong, where),
        *_pruner_problems(good, where),
    ]
    return Tuning(tuple(distributions), **good), problems


def _number_problems(options: Mapping[str, Any], where: str) -> list[Problem]:
    """Problems of numbers that are too small or too large."""
    most = {"trials": MOST_TRIALS, "batch": MOST_TRIALS}
    problems = [
        Problem(f"{where}.{key}", options[key], f"must be 1 to {largest}", f"{key}: 4")
        for key, largest in most.items()
        if options.get(key) is not None and not 1 <= options[key] <= largest
    ]
    if options.get("seconds") is not None and not 0 < options["seconds"] < math.inf:
        problems.append(Problem(f"{where}.seconds", options["seconds"], "must be larger than 0", "seconds: 600"))
    if options.get("warmup") is not None and options["warmup"] < 0:
        problems.append(Problem(f"{where}.warmup", options["warmup"], "must be 0 or more", "warmup: 1"))
    if options.get("seed") is not None and not 0 <= options["seed"] < 2**32:
        problems.append(Problem(f"{where}.seed", options["seed"], "must be 0 to 2^32 - 1", "seed: 0"))
    return problems


def _goal_problems(options: Mapping[str, Any], wrong: set[str], where: str) -> list[Problem]:
    """Problems of the budget and of the target."""
    problems = []
    if options.get("trials") is None and options.get("seconds") is None and not wrong & {"trials", "seconds"}:
        problems.append(Problem(f"{where}.trials", None, "a budget is needed: trials, seconds or both", "trials: 12"))
    needs, target = options.get("objective") == "time_to_target", options.get("target")
    if needs and "target" not in wrong and (target is None or not math.isfinite(target)):
        problems.append(
            Problem(f"{where}.target", target, "time_to_target needs the validation metric to reach", "target: 0.9")
        )
    if not needs and target is not None and "objective" not in wrong:
        problems.append(
            Problem(
                f"{where}.target",
                target,
                "only time_to_target has a target",
                "leave it out, or objective: time_to_target",
            )
        )
    return problems


def _pruner_problems(options: Mapping[str, Any], where: str) -> list[Problem]:
    """Problems of pruning with the other keys."""
    pruned, problems = options.get("pruner") == "median", []
    if pruned and options.get("objective") == "time_to_target":
        problems.append(
            Problem(
                f"{where}.pruner",
                "median",
                "compares validation metrics by epoch, but time_to_target "
                "compares seconds: a worse epoch may be a faster one",
                "pruner: none",
            )
        )
    if not pruned and "warmup" in options:
        problems.append(Problem(f"{where}.warmup", options["warmup"], "only pruner: median has it", "leave it out"))
    return problems


def _distributions(nodes: Mapping[object, Any], where: str) -> tuple[list[Distribution], list[Problem]]:
    distributions, problems = [], list[Problem]()
    for key, node in nodes.items():
        place = f"{where}.{key}"
        if not isinstance(node, Mapping):
            problems.append(Problem(place, node, f"must be {_EXAMPLES}", f"{key}: {_EXAMPLES}"))
            continue
        wrong = key_problems(place, {str(name): value for name, value in node.items()}, _RANGE)
        distribution = None if wrong else _distribution(str(key), node)
        if isinstance(distribution, Distribution):
            distributions.append(distribution)
        else:
            problems += wrong or [Problem(place, dict(node), str(distribution), f"{key}: {_EXAMPLES}")]
    return distributions, problems


def _distribution(key: str, node: Mapping[Any, Any]) -> Distribution | Refusal:
    """The distribution, or what it must be."""
    if "choices" in node:
        texts = tuple(override_text(value) for value in node["choices"])
        if len(node) > 1 or not texts or len(set(texts)) < len(texts):
            return Refusal("choices must be a list of different values, without low, high and log")
        return Distribution(key, choices=texts)
    low, high, log = _number(node.get("low")), _number(node.get("high")), bool(node.get("log", False))
    if low is None or high is None:
        return Refusal("low and high must be numbers")
    if low >= high:
        return Refusal("low must be less than high")
    if log and low <= 0:
        return Refusal("log needs a low above 0")
    return Distribution(key, low, high, log)


def _number(value: object) -> float | None:
    """A finite number. YAML reads `1e-4` as a text, since it has no dot."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return (value if isinstance(value, int) else number) if math.isfinite(number) else None


def trial_key_problems(tuning: Tuning, cases: Sequence[Sequence[str]]) -> list[Problem]:
    """Problems of keys that trials vary and the sweep or the command line sets."""
    lines = dict.fromkeys(line for case in cases for line in case if override_key(line) in tuning.keys)
    return [
        Problem(line, override_key(line), "trials vary this key", "leave it out here, or in tune.distributions")
        for line in lines
    ]
