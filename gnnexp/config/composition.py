"""Hydra's composition. A choice of groups is composed once and kept; values are applied to a copy of it.

Hydra reads and merges a file for every group, and the cases of a sweep choose the same groups again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gnnexp.config.folders import ConfigFolders
from gnnexp.config.overrides import is_group, parse
from gnnexp.errors import ConfigError, Problem

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


class Composition(NamedTuple):
    """Plain contents of a composition.

    Attributes:
        config: without Hydra's own node; resolved if asked for (values that are not given stay `???`).
        run_dir: `hydra.run.dir`, resolved.
        choices: chosen file of each group, as Hydra names them; None where the choice is null.
    """

    config: dict[str, Any]
    run_dir: str
    choices: dict[str, str | None]


def composition(folders: ConfigFolders, lines: Sequence[str], *, final: bool) -> Composition:
    """Compose `lines` that are in Hydra's grammar, resolved if `final`.

    Raises:
        ConfigError: with what Hydra or a file's YAML parser says.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    register_resolvers()
    try:
        return _contents(*_composed(folders, lines), final=final)
    except YAMLError as error:
        reason = f"not YAML: {' '.join(str(error).split())}"
        raise ConfigError(Problem("configuration", " ".join(lines), reason, "correct the file")) from None
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(Problem("configuration", " ".join(lines), reason, "correct the override or file")) from error


class _Groups(NamedTuple):
    """What a choice of groups composes to; not to be changed.

    Attributes:
        config: without Hydra's own node, which is larger than all else and the same for all values.
        hydra: that node, where `${hydra:…}` looks it up; `run.dir` is that of the last values.
        run_dir: `hydra.run.dir`, not resolved.
        choices: as in `Composition`.
        tells_lines: whether something refers to the lines that were typed (`${hydra:job.override_dirname}`).
    """

    config: DictConfig
    hydra: HydraConf
    run_dir: str
    choices: dict[str, str | None]
    tells_lines: bool


def _contents(groups: _Groups, values: Sequence[Override], *, final: bool) -> Composition:
    """`groups` with `values`, as plain dicts."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, read_write
    from omegaconf.errors import InterpolationToMissingValueError

    composed = deepcopy(groups.config)
    for override in values:
        _apply(override, composed)
    run_dir = "runs/unnamed"  # if a value is missing that names it: that is reported, and there will be no run
    if final:
        HydraConfig.instance().cfg = groups.hydra  # lets ${hydra:…} resolve
        with suppress(InterpolationToMissingValueError):
            run_dir = _resolved(groups.run_dir, composed)
        node = cast("DictConfig", groups.hydra).hydra
        with read_write(node):
            node.run.dir = run_dir
    config = OmegaConf.to_container(composed, resolve=final)
    assert isinstance(config, dict)
    return Composition({str(key): value for key, value in config.items()}, run_dir, dict(groups.choices))


def _resolved(run_dir: str, config: DictConfig) -> str:
    """`hydra.run.dir` as it reads in `config`."""
    from omegaconf import OmegaConf, open_dict

    with open_dict(config):
        config["hydra"] = OmegaConf.create({"run": {"dir": run_dir}})
        try:
            return str(config.hydra.run.dir)
        finally:
            del config["hydra"]


def _composed(folders: ConfigFolders, lines: Sequence[str]) -> tuple[_Groups, list[Override]]:
    """What was kept of the groups in `lines`, and the values to be applied to a copy of it."""
    overrides, problems = parse(lines)
    assert not problems, problems
    values = [override for override in overrides if not is_group(override, folders)]
    run_dirs = [override for override in values if _is_run_dir(override)]  # one in every case of a sweep
    values = [override for override in values if override not in run_dirs]
    if any(_needs_hydra(override) for override in values):
        return _by_hydra(folders, lines), []
    choices = tuple(str(override.input_line) for override in overrides if is_group(override, folders))
    groups = _kept(folders, choices, folders.stamp(), Path.cwd())
    if groups.tells_lines:
        return _by_hydra(folders, lines), []
    return groups._replace(run_dir=str(run_dirs[-1].value())) if run_dirs else groups, values


def _is_run_dir(override: Override) -> bool:
    """A plain text for it: that changes nothing else."""
    line = str(override.input_line)
    return line.startswith("hydra.run.dir=") and "${hydra" not in line and isinstance(override.value(), str)


def _needs_hydra(override: Override) -> bool:
    """Its own node may refer to any line, and it says what a package may not be."""
    own = str(override.key_or_group).startswith("hydra") or "${hydra" in str(override.input_line)
    return own or override.package is not None


@lru_cache(maxsize=256)
def _kept(folders: ConfigFolders, choices: tuple[str, ...], stamp: int, cwd: Path) -> _Groups:
    """Files by their `stamp`; Hydra notes the working directory."""
    return _by_hydra(folders, choices)


def _by_hydra(folders: ConfigFolders, lines: Sequence[str]) -> _Groups:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, open_dict

    composed = _compose(folders, lines)
    HydraConfig.instance().set_config(composed)
    hydra = HydraConfig.instance().cfg
    assert hydra is not None
    run = OmegaConf.to_container(composed.hydra.run)
    assert isinstance(run, dict)
    choices = dict(composed.hydra.runtime.choices)
    config = deepcopy(composed)
    with open_dict(config):
        del config["hydra"]
    run_dir = str(run["dir"]).replace("${hydra.", "${hydra:")  # the node is not in what it is resolved with
    return _Groups(config, hydra, run_dir, choices, _tells_lines(run_dir + OmegaConf.to_yaml(config)))


def _tells_lines(text: str) -> bool:
    return any(f"${{hydra{mark}{node}" in text for mark in ":." for node in ("job", "overrides"))


def _compose(folders: ConfigFolders, lines: Sequence[str]) -> DictConfig:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    own, *more = folders.folders
    search = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in more)}]"] if more else []
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(own), version_base="1.3"):
        return compose("config", [*search, *lines], return_hydra_config=True)


def _apply(override: Override, config: DictConfig) -> None:
    """Change one value as Hydra would: an error for what is not there unless it is added.

    Raises:
        ConfigError: what is deleted is not there, or has another value than the one that was named.
    """
    from omegaconf import OmegaConf, open_dict

    key, value = str(override.key_or_group), override.value()
    if not override.is_delete():
        forced = override.is_add() or override.is_force_add()
        OmegaConf.update(config, key, value, merge=True, force_add=forced)
        return
    there = OmegaConf.select(config, key, throw_on_missing=False)
    if there is None or value not in (None, there):
        raise ConfigError(Problem(f"~{key}", value, f"its value is {there}", f"write ~{key}"))
    parent, _, last = key.rpartition(".")
    with open_dict(config):
        del (OmegaConf.select(config, parent) if parent else config)[last]


def register_resolvers() -> None:
    """Make known what `conf/config.yaml` uses beyond Hydra's own."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("first_of", _first_of, replace=True)


def _first_of(*words: object) -> str:
    """Resolver of `conf/config.yaml`: the first of its arguments that is set, as part of a folder's name."""
    return next((str(word) for word in words if word not in (None, "null", "")), "run")


def missing(node: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Keys whose value must be given (`???`)."""
    nested = [missing(value, f"{prefix}{key}.") for key, value in node.items() if isinstance(value, Mapping)]
    own = [f"{prefix}{key}" for key, value in node.items() if value == "???"]
    return own + [key for keys in nested for key in keys]
