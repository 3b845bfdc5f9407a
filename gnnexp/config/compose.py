"""From overrides to one resolved, plain configuration. The only module that knows Hydra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.config.build import keys_of
from gnnexp.config.folders import ConfigFolders, find_folders
from gnnexp.config.schema import HardwareConfig, TrainConfig
from gnnexp.config.signature import one_of, parameters_of_dataclass, unknown
from gnnexp.errors import ConfigError, Problem

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True)
class Composed:
    """A resolved configuration and what it came from.

    Attributes:
        config: plain dicts, lists and scalars; the groups and `seed`, `system`, `name`.
        run_dir: where the run goes (`hydra.run.dir`), not created yet.
        choices: chosen file of each group, None where the choice is null.
        overrides: as typed.
        config_dir: the user's own folder of YAML files.
    """

    config: dict[str, Any]
    run_dir: Path
    choices: dict[str, str | None]
    overrides: tuple[str, ...]
    config_dir: str | None = None


def compose(overrides: Sequence[str], config_dir: str | None = None) -> Composed:
    """Compose `conf/config.yaml` with `overrides` in Hydra's grammar.

    A key that its YAML file does not list but the constructor takes needs no `+`.

    Args:
        overrides: `group=choice`, `group.key=value`.
        config_dir: folder with further `<group>/<choice>.yaml`, of the user.

    Raises:
        ConfigError: with every syntax error, unknown choice and unknown key.
    """
    folders = find_folders(config_dir)
    parsed, problems = _parse(overrides)
    groups: list[Override] = []
    values: list[Override] = []
    for override in parsed:
        (groups if _is_group(override, folders) else values).append(override)
    wrong = {id(override): problem for override in groups if (problem := _check_choice(override, folders))}
    problems += wrong.values()
    lines = [str(override.input_line) for override in groups if id(override) not in wrong]
    base, _ = _compose(folders, lines, final=False)
    for override in values:
        line, problem = _admit(override, base, folders)
        if problem:
            problems.append(problem)
        else:
            lines.append(line)
    if problems:
        raise ConfigError(problems)
    config, hydra = _compose(folders, lines, final=True)
    choices = {group: hydra["runtime"]["choices"].get(group) for group in sorted(folders.groups())}
    return Composed(config, Path(hydra["run"]["dir"]), choices, tuple(overrides), config_dir)


def expand_values(overrides: Sequence[str]) -> list[list[str]]:
    """Each override as the list of its values: `a=1,2` gives `[a=1, a=2]`, `a=[1,2]` and `a=1` give one.

    Raises:
        ConfigError: with every syntax error.
    """
    parsed, problems = _parse(overrides)
    if problems:
        raise ConfigError(problems)
    expanded = []
    for override in parsed:
        if override.is_sweep_override():
            values = override.sweep_string_iterator()
            expanded.append([f"{override.get_key_element()}={value}" for value in values])
        else:
            expanded.append([str(override.input_line)])
    return expanded


def _parse(overrides: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems = []
    for line in overrides:
        try:
            parsed.append(parser.parse_override(line))
        except HydraException as error:
            reason = str(error).splitlines()[0]
            problems.append(Problem(line, line, f"not key=value: {reason}", "quote special characters: 'key=\"a b\"'"))
    return parsed, problems


def _is_group(override: Override, folders: ConfigFolders) -> bool:
    return override.key_or_group in folders.groups() and not isinstance(override.value(), dict)


def _check_choice(override: Override, folders: ConfigFolders) -> Problem | None:
    group, value = override.key_or_group, override.value()
    if override.is_delete():
        return Problem(f"~{group}", None, "every group is needed", f"choose one: {group}=<name>")
    if override.is_add():
        return Problem(f"+{group}", value, "the group is there already", f"write {group}={value}")
    if override.is_sweep_override():
        return _sweep_problem(override)
    choices = folders.choices(group)
    if group == "system":
        choices |= {"null"}
    if ("null" if value is None else value) in choices:
        return None
    return unknown(group, value, str(value), choices, f"{group}=")


def _sweep_problem(override: Override) -> Problem:
    line = str(override.input_line)
    return Problem(line, line, "one value per run", f"gnnexp sweep 'NAME' {line}, or quote it as one text")


def _admit(override: Override, base: Mapping[str, Any], folders: ConfigFolders) -> tuple[str, Problem | None]:
    """The line as Hydra takes it (with `+` for a key that only the constructor knows), or what is wrong with it."""
    line, path = str(override.input_line), str(override.key_or_group)
    if override.is_sweep_override():
        return line, _sweep_problem(override)
    if override.is_add() or override.is_force_add() or path.startswith("hydra."):
        return line, None
    *parents, last = path.split(".")
    node: object = base
    for depth, part in enumerate(parents):
        if not isinstance(node, Mapping) or part not in node:
            return line, _unknown_key(override, node, [*parents[:depth], part], folders)
        node = node[part]
    if isinstance(node, Mapping) and last in node:
        return line, None
    if last in _constructor_keys(parents, node) and not override.is_delete():
        return f"+{line}", None
    return line, _unknown_key(override, node, [*parents, last], folders)


def _constructor_keys(parents: Sequence[str], node: object) -> tuple[str, ...]:
    fixed = {"train": TrainConfig, "hardware": HardwareConfig}
    if len(parents) == 1 and parents[0] in fixed:
        return tuple(parameters_of_dataclass(fixed[parents[0]]))
    return keys_of(node) if isinstance(node, Mapping) else ()


def _unknown_key(override: Override, node: object, path: Sequence[str], folders: ConfigFolders) -> Problem:
    """The problem of `path`, whose last part is not in `node`."""
    *parents, word = path
    allowed = set(node) | set(_constructor_keys(parents, node)) if isinstance(node, Mapping) else set()
    if not parents:
        allowed |= folders.groups()
    allowed -= {"_target_"}
    key, value, where = str(override.key_or_group), override.value(), ".".join(parents)
    if not allowed:
        if node is None:
            whole = f"'{where}={{{word}:{value},…}}'"
            return Problem(key, value, f"{where} is null, without keys of its own", f"set it whole: {whole}")
        return Problem(key, value, f"{where} is a single value", f"write {where}=<value>")
    problem = unknown(key, value, word, allowed, "".join(f"{parent}." for parent in parents))
    return Problem(key, value, f"no such key; {one_of(allowed)}", problem.mend)


def _compose(
    folders: ConfigFolders, lines: Sequence[str], *, final: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Config and Hydra's own node; resolved and complete if `final`."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    OmegaConf.register_new_resolver("first_of", _first_of, replace=True)
    own, *more = folders.folders
    search = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in more)}]"] if more else []
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(own), version_base="1.3"):
            composed = hydra_compose("config", [*search, *lines], return_hydra_config=True)
            HydraConfig.instance().set_config(composed)  # lets ${hydra:…} resolve
            hydra = OmegaConf.to_container(composed.hydra, resolve=False)
            written = OmegaConf.to_container(composed, resolve=False)
            assert isinstance(hydra, dict) and isinstance(written, dict)
            del written["hydra"]
            missing = _missing(written)
            if not final or missing:
                return _complete(written, missing if final else []), _plain(hydra)
            hydra["run"]["dir"] = composed.hydra.run.dir
            with open_dict(composed):
                del composed["hydra"]
            config = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(Problem("configuration", " ".join(lines), reason, "correct the override or file")) from error
    assert isinstance(config, dict)
    return _plain(config), _plain(hydra)


def _missing(node: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Keys whose value must be given (`???`)."""
    nested = [_missing(value, f"{prefix}{key}.") for key, value in node.items() if isinstance(value, Mapping)]
    own = [f"{prefix}{key}" for key, value in node.items() if value == "???"]
    return own + [key for keys in nested for key in keys]


def _complete(config: Mapping[Any, Any], missing: Sequence[str]) -> dict[str, Any]:
    if missing:
        raise ConfigError([Problem(key, "???", "has no default", f"set {key}=…") for key in missing])
    return _plain(config)


def _plain(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in mapping.items()}


def _first_of(*words: object) -> str:
    """Resolver of `conf/config.yaml`: the first of its arguments that is set, as part of a folder's name."""
    return next((str(word) for word in words if word not in (None, "null", "")), "run")
