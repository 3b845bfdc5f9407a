"""Parses overrides in Hydra's grammar, and checks them against groups, keys, and what a resumed run may change."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.signature import nearest, one_of, parameters_of_dataclass, unknown
from gnnexp.config.composition import parsed_by_hydra
from gnnexp.config.folders import ConfigFolders, find_folders
from gnnexp.config.hints import SLIP, keys_elsewhere, lines_of_key, no_override, unknown_choice
from gnnexp.config.meant import meaning_in_words
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import keys_of
from gnnexp.provenance.older import GONE, KEYS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


# Groups whose keys do not depend on the choice.
FIXED = {"train": TrainConfig, "hardware": HardwareConfig}
# Groups that a run may have no choice of.
NULLABLE = ("system", "scheduler")


def parse(overrides: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """The overrides in Hydra's grammar, and the problems of the others."""
    found = [_parsed(line) for line in overrides]
    problems = [no_override(one, find_folders(None)) for one in found if isinstance(one, Problem)]
    return [one for one in found if not isinstance(one, Problem)], problems


@lru_cache(maxsize=4096)
def _parsed(line: str) -> Override | Problem:
    """An override, or its problem; cached as `parsed_by_hydra`."""
    from hydra.errors import HydraException

    try:
        return parsed_by_hydra(line)
    except (HydraException, ValueError, RecursionError) as error:  # too many digits, too many brackets
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return Problem(line, line, f"not key=value: {reason}", "quote special characters: 'key=\"a b\"'")


def is_group(override: Override, groups: Collection[str]) -> bool:
    """Whether the override chooses a file of one of these groups (`model=gat`), and is not a value."""
    return override.key_or_group in groups and not isinstance(override.value(), dict)


def hydra_line(override: Override) -> str:
    """The override as Hydra takes it: Hydra has no null choice, and leaves a group out by `~group`."""
    null = override.value() is None and override.key_or_group in NULLABLE and not override.is_delete()
    return f"~{override.key_or_group}" if null else str(override.input_line)


def choice_problem(override: Override, folders: ConfigFolders, listed: Mapping[str, str | None]) -> Problem | None:
    """The problem of a group's choice, or None.

    Args:
        override: the override that chooses.
        folders: folders of the choices.
        listed: the groups of the defaults list with their choices.
    """
    group, value = str(override.key_or_group), override.value()
    name = group if override.package is None else f"{group}@{override.package}"
    if override.is_delete():
        needed = name in listed and group not in NULLABLE
        return Problem(f"~{name}", None, "every group is needed", f"choose one: {name}=<name>") if needed else None
    if override.is_add() and name in listed:
        return Problem(f"+{name}", value, "the group is there already", f"write {name}={value}")
    if override.is_sweep_override():
        return _sweep_problem(override)
    if not override.is_add() and name not in listed:
        return Problem(name, value, "the group is not in the defaults list", f"add it: +{name}={value}")
    choices = folders.choices(group) | ({"null"} if group in NULLABLE else set())
    chosen = value if isinstance(value, list) and override.is_add() else [value]
    wrong = [choice for choice in chosen if ("null" if choice is None else str(choice)) not in choices]
    return unknown_choice(name, wrong[0], choices, folders) if wrong else None


def _sweep_problem(override: Override) -> Problem:
    line = str(override.input_line)
    return Problem(
        line,
        line,
        "one value per run",
        f"several runs: add -m (without --cfg), or gnnexp sweep NAME {line}; one text: quote it",
    )


def admit(
    override: Override,
    base: Mapping[str, Any],
    folders: ConfigFolders,
    composes: Callable[[str], bool],
) -> tuple[str, Problem | None]:
    """The line in Hydra's form (with `+` for a key that only the constructor has), and its problem or None.

    Args:
        override: the override that sets a value.
        base: the configuration without values of overrides.
        folders: folders of the choices.
        composes: whether a proposed override is right in this configuration. Others are not proposed.
    """
    line, path = str(override.input_line), str(override.key_or_group)
    if override.is_sweep_override():
        return line, _sweep_problem(override)
    if path.startswith(("hydra.", "hydra/")) or override.is_add() or override.is_force_add():
        return line, of_hydra(override) or _added_twice(override, base)
    *parents, last = path.split(".")
    node: object = base
    for depth, part in enumerate(parents):
        if not isinstance(node, Mapping) or part not in node:
            return line, _unknown_key(override, base, node, [*parents[:depth], part], folders, composes)
        node = node[part]
    if isinstance(node, Mapping) and last in node:
        return line, None
    if last in further_keys(parents, node) and not override.is_delete():
        return f"+{line}", None
    return line, _unknown_key(override, base, node, [*parents, last], folders, composes)


# What gnnexp cannot do of Hydra's own options, and why.
_REFUSED = {
    "hydra.job.chdir": ("every run stays in the folder of the command: paths are relative to it", "leave it out"),
    "hydra.verbose": ("gnnexp's ranks write no log records of Python's logging", "read gnnexp logs RUN_DIR"),
    "hydra.mode": ("gnnexp asks the command line whether to run several jobs", "gnnexp run -m …"),
    "hydra/launcher": (
        "gnnexp starts the ranks of every job itself (the submitit plugin calls failed jobs COMPLETED)",
        "leave it out, and use --jobs N or hardware=slurm_cpu",
    ),
}


def of_hydra(override: Override) -> Problem | None:
    """The problem of an override of Hydra's own options, or None."""
    key, value = str(override.key_or_group), override.value()
    if key not in _REFUSED or value in (None, False, "basic"):
        return None
    return Problem(key, value, *_REFUSED[key])


def _added_twice(override: Override, base: Mapping[str, Any]) -> Problem | None:
    line, path = str(override.input_line), str(override.key_or_group)
    if override.is_force_add() or not override.is_add() or not _holds(base, path):
        return None
    return Problem(f"+{path}", override.value(), "the key is there already", f"write {line.lstrip('+')}")


def _holds(node: object, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True


def further_keys(parents: Sequence[str], node: object) -> tuple[str, ...]:
    """The keys that the node at the path `parents` may have, as its constructor takes them."""
    if len(parents) == 1 and parents[0] in FIXED:
        return tuple(parameters_of_dataclass(FIXED[parents[0]]))
    return keys_of(node) if isinstance(node, Mapping) else ()


def _unknown_key(
    override: Override,
    base: Mapping[str, Any],
    node: object,
    path: Sequence[str],
    folders: ConfigFolders,
    composes: Callable[[str], bool],
) -> Problem:
    """The problem of a `path` whose last part is not in `node`."""
    *parents, word = path
    if (today := KEYS.get(".".join(path))) is not None:
        return Problem(str(override.key_or_group), override.value(), f"is {today} now", f"write {today}=…")
    if (why := GONE.get(".".join(path))) is not None:
        return Problem(".".join(path), override.value(), why, "leave it out")
    allowed = set(node) | set(further_keys(parents, node)) if isinstance(node, Mapping) else set()
    if not parents:
        allowed |= folders.groups()
    allowed -= {"_target_", "_partial_"}
    key, value, where = str(override.key_or_group), override.value(), ".".join(parents)
    if not allowed:
        if node is None:
            whole = f"'{where}={{{word}:{value},…}}'"
            return Problem(key, value, f"{where} is null, without keys of its own", f"set it whole: {whole}")
        return Problem(key, value, f"{where} is a single value", f"write {where}=<value>")
    prefix = "".join(f"{up}." for up in parents)
    problem = unknown(key or f"{override.input_line}", value, word, allowed, prefix)
    typed = str(override.input_line).partition("=")[2]
    fix = meaning_in_words(word, typed, composes) or _nearest_key(base, word, allowed, typed, composes)
    close = nearest(word, allowed)
    if not fix and close and (nearest(word, allowed, SLIP) or composes(f"{prefix}{close}={typed}")):
        fix = problem.fix
    return Problem(problem.key, value, f"no such key; {one_of(allowed)}", fix or "choose one of them")


def _nearest_key(
    base: Mapping[str, Any],
    word: str,
    allowed: Collection[str],
    value: str,
    composes: Callable[[str], bool],
) -> str:
    """The fix that names keys of other groups; empty if there are none, or `word` is a slip for a key in its place."""
    keys = keys_elsewhere(word, base, further_keys)
    exact = [key for key in keys if key.rpartition(".")[2] == word]
    if not keys or (nearest(word, allowed, SLIP) and not exact):
        return ""
    return _proposal([line for line in lines_of_key(exact or keys, value) if composes(line)])


def _proposal(lines: Sequence[str]) -> str:
    return f"did you mean {' or '.join(lines)}?" if lines else ""


# Keys that may change: where the run is executed and how records are kept. They do not change the experiment.
CHANGEABLE = (
    "hardware.",
    "tracker.",
    "train.checkpoint_every",
    "train.checkpoints_kept",
    "train.overlap",
    "train.eval_memory",
)


def changed(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with changes that keep it the same experiment.

    Raises:
        ConfigError: an override is not `key=value`, or changes another key; all of them are reported.
    """
    parsed, problems = parse(overrides)
    result = json.loads(json.dumps(config))
    for override in parsed:
        key, value = str(override.key_or_group), override.value()
        if not key.startswith(CHANGEABLE):
            problems.append(
                Problem(
                    key,
                    value,
                    f"a resumed run may only change {', '.join(CHANGEABLE)}",
                    "leave it out, or start a new run",
                )
            )
            continue
        *parents, last = key.split(".")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else {}
        node[last] = value
    if problems:
        raise ConfigError([replace(problem, key=f"resume: {problem.key}") for problem in problems])
    return dict(result)
