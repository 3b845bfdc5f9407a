"""Reads the files of `sweeps/` and expands them into cases."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnexp.components.packages import install_command, is_installed
from gnnexp.components.signature import unknown
from gnnexp.config.compose import expand_values
from gnnexp.config.folders import product_sweeps
from gnnexp.config.yaml_files import yaml_problem
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import why_unreadable
from gnnexp.reports.layout import read_layout

_MAX_CASES = 10_000
_KEYS = {
    "description": str,
    "fixed": list,
    "axes": dict,
    "cases": list,
    "full": list,
    "full_cases": list,
    "report": dict,
    "tune": dict,
    "without": dict,
    "retries": int,
}


@dataclass(frozen=True)
class Case:
    """One run of a sweep.

    Attributes:
        label: the overrides that distinguish the case from the others.
        overrides: all overrides of the case, one per key.
    """

    label: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A sweep with its cases.

    Attributes:
        name: name of its file.
        description: one sentence about the sweep.
        cases: the cases without repetition, in the file's order, but all of one seed before those of the next.
        report: the `report:` block of its file, which `read_layout` reads.
        command: the command that was typed for it.
        tune: the `tune:` block of its file, which `gnnexp.cli.tuning.definition.read_tuning` reads.
        notes: sentences that its report must contain.
        retries: how often a case that failed is tried again, after the others.
        looks: how often results were looked at, to decide whether more seeds are needed (`gnnexp.cli.sweeping.until`).
    """

    name: str
    description: str
    cases: tuple[Case, ...]
    report: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    tune: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    retries: int = 0
    looks: int = 0


def load_sweep(name: str, overrides: Sequence[str] = (), *, full: bool = False) -> Sweep:
    """Read and expand a sweep of `sweeps/`, or the file `name`. `overrides` win; `key=a,b` adds an axis.

    Args:
        name: name of the sweep, or its file.
        overrides: the overrides of the command line.
        full: whether to use the paper's size, for a cluster. It adds the file's `full` overrides, and replaces its
            `cases` by `full_cases`, if there are any. The full sweep has a name of its own.

    Raises:
        ConfigError: the sweep does not exist, or its file or the overrides have mistakes.
    """
    name, file = _find(name)
    content = _read(file)
    if full and "full" not in content:
        raise ConfigError(Problem("--full", name, "this sweep has one size only", "leave --full out"))
    content, notes = _with_what_is_installed(content)
    axes = [
        *([str(line)] for line in content.get("fixed", [])),
        *([f"{key}={override_text(value)}" for value in values] for key, values in content.get("axes", {}).items()),
    ]
    chosen = "full_cases" if full and "full_cases" in content else "cases"
    cases = [expand_values([str(line) for line in case["overrides"]]) for case in content.get(chosen, [])] or [[]]
    more = [*([str(line)] for line in (content["full"] if full else ())), *expand_values(overrides)]
    count = sum(math.prod(map(len, [*axes, *case, *more])) for case in cases)
    if count > _MAX_CASES:
        raise ConfigError(Problem(str(file), f"{count} runs", f"at most {_MAX_CASES} in one sweep", "split it"))
    expanded: dict[tuple[str, ...], Case] = {}
    for case in cases:
        for combination in itertools.product(*axes, *case, *more):
            lines = last_of_each_key(combination)
            expanded.setdefault(lines, Case("", lines))
    labelled = label_cases(_seed_by_seed(list(expanded)))
    name = f"{name}_full" if full else name
    return Sweep(
        name,
        content.get("description", ""),
        tuple(labelled),
        content.get("report", {}),
        tune=content.get("tune", {}),
        notes=notes,
        retries=content.get("retries", 0),
    )


def _with_what_is_installed(content: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The content of a sweep, with other values on its axes where a package is missing, and a sentence for each."""
    axes, notes = dict(content.get("axes", {})), []
    for package, changes in content.get("without", {}).items():
        if is_installed(package):
            continue
        for line, instead in changes.items():
            key, _, value = line.partition("=")
            axes[key] = [
                instead.partition("=")[2] if override_text(choice) == value else choice for choice in axes[key]
            ]
            how = install_command(package)
            notes.append(f"{package} is not installed ({how}): {instead} takes the place of {line}.")
    return {**content, "axes": axes}, tuple(notes)


def _seed_by_seed(cases: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """All cases of the first seed, then all of the next.

    Runs that are compared are then made at about the same time, so other load on the machine affects them alike. A
    drift of the machine's speed appears in the spread over seeds.
    """
    seeds = [next((line for line in case if override_key(line) == "seed"), "") for case in cases]
    order = list(dict.fromkeys(seeds))
    return [case for _, case in sorted(zip(seeds, cases, strict=True), key=lambda pair: order.index(pair[0]))]


def is_sweep_file(word: str) -> bool:
    """Whether a user names a sweep by its file."""
    return Path(word).suffix in (".yaml", ".yml")


def sweep_name(word: str, command: str) -> str:
    """The name of the sweep that a user names by its file; any other word is unchanged.

    Raises:
        ConfigError: the file cannot be read; the problem's key is `command`.
    """
    if not is_sweep_file(word) or word in product_sweeps():
        return word
    if why := why_unreadable(Path(word)):
        raise ConfigError(Problem(command, word, f"must be a file of a sweep: {why}", "correct the path"))
    names = {file.resolve(): own for own, file in product_sweeps().items()}
    return names.get(Path(word).resolve(), Path(word).stem)


def sweep_file(word: str) -> Path:
    """The file of a sweep that a user names."""
    return _find(word)[1]


def _find(word: str) -> tuple[str, Path]:
    """Name and file of a sweep, found by its name or by its file."""
    known, name = product_sweeps(), sweep_name(word, "sweep")
    if word in known:
        return word, known[word]
    if is_sweep_file(word):
        return name, Path(word)
    raise ConfigError(unknown("sweep", word, word, known))


def _read(file: Path) -> dict[str, Any]:
    import yaml

    if problem := yaml_problem(file):
        raise ConfigError(problem)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(Problem(str(file), "yaml", " ".join(str(error).split()), "correct the file")) from None
    except (ValueError, OSError) as error:  # not UTF-8, or a number with thousands of digits
        raise ConfigError(Problem(str(file), "text", str(error), "save it as UTF-8, readable by you")) from None
    if not isinstance(content, dict):
        raise ConfigError(Problem(str(file), content, f"must hold some of {', '.join(_KEYS)}", "see sweeps/*.yaml"))
    problems = [unknown(f"{file}: {key}", value, str(key), _KEYS) for key, value in content.items() if key not in _KEYS]
    for key, kind in _KEYS.items():
        if key in content and not isinstance(content[key], kind):
            problems.append(Problem(f"{file}: {key}", content[key], f"must be a {kind.__name__}", "correct the file"))
    if not problems:
        problems = _shape_problems(file, content)
    ConfigError.raise_all(problems)
    return content


def _shape_problems(file: Path, content: Mapping[str, Any]) -> list[Problem]:
    problems = [
        Problem(
            f"{file}: axes.{key}", values, "must be a list of at least one value", f"{key}: [{override_text(values)}]"
        )
        for key, values in content.get("axes", {}).items()
        if not isinstance(values, list) or not values
    ]
    problems += [
        Problem(
            f"{file}: without.{package}",
            changes,
            "must change values of axes, and not their keys",
            "without: {dgl: {system=dgl_reference: system=p3}}",
        )
        for package, changes in content.get("without", {}).items()
        if not _is_of_axes(changes, content.get("axes", {}))
    ]
    if "full_cases" in content and "full" not in content:
        problems.append(
            Problem(
                f"{file}: full_cases",
                "without full",
                "needs `full`, the overrides of the same size",
                "add `full: [hardware=…]`",
            )
        )
    for case in [*content.get("cases", []), *content.get("full_cases", [])]:
        if not isinstance(case, dict) or set(case) != {"overrides"} or not isinstance(case["overrides"], list):
            problems.append(Problem(f"{file}: cases", case, "must be `overrides: [key=value, …]`", "correct the file"))
    if content.get("retries", 0) < 0:
        problems.append(Problem(f"{file}: retries", content["retries"], "must be 0 or more", "retries: 2"))
    try:
        read_layout(content.get("report", {}), f"{file}: report")
    except ConfigError as error:
        problems += error.problems
    return problems


def _is_of_axes(changes: object, axes: Mapping[str, object]) -> bool:
    """Whether `changes` gives another value for values of axes."""
    if not isinstance(changes, dict) or not changes:
        return False
    for line, instead in changes.items():
        (key, _, value), other = str(line).partition("="), str(instead).partition("=")[0]
        values = axes.get(key)
        if key != other or not isinstance(values, list) or value not in map(override_text, values):
            return False
    return True


def override_text(value: object) -> str:
    """A YAML value as Hydra reads it in an override."""
    if isinstance(value, list):
        return "[" + ",".join(override_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{override_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(value)


def override_key(line: str) -> str:
    """The key of an override, for example `a.b` of `+a.b=c`."""
    return line.partition("=")[0].lstrip("+~")


def last_of_each_key(lines: Sequence[str]) -> tuple[str, ...]:
    """The last override of each key, in order of the keys' first appearance."""
    return tuple({override_key(line): line for line in lines}.values())


def label_cases(cases: Sequence[tuple[str, ...]]) -> list[Case]:
    """The cases with labels: the overrides that not all cases share."""
    shared = set.intersection(*(set(case) for case in cases)) if cases else set()
    return [Case(" ".join(line for line in case if line not in shared) or "run", case) for case in cases]
