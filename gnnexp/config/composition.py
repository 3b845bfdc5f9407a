"""Hydra's composition. A choice of groups is composed once and kept; values are applied to a copy of it.

Hydra reads and merges a file for every group, and the cases of a sweep choose the same groups again and again.
"""

from __future__ import annotations

import re
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
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


class Composition(NamedTuple):
    """The plain contents of a composition.

    Attributes:
        config: the configuration without Hydra's own node; resolved if requested (missing values stay `???`).
        run_dir: `hydra.run.dir`, resolved.
        choices: name of the chosen file of each group, with Hydra's group names; None for a null choice.
    """

    config: dict[str, Any]
    run_dir: str
    choices: dict[str, str | None]


def composition(folders: ConfigFolders, lines: Sequence[str], *, final: bool) -> Composition:
    """Compose `lines`, which are in Hydra's grammar; resolve the result if `final`.

    Raises:
        ConfigError: Hydra or the YAML parser of a file reports an error.
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
        reason = " ".join(f"{error} {error.__cause__ or ''}".split()) or type(error).__name__
        raise ConfigError(Problem("configuration", " ".join(lines), reason, "correct the override or file")) from error


def _contents(kept: DictConfig, values: Sequence[Override], *, final: bool) -> Composition:
    """A copy of `kept` with `values` applied, as plain dicts."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, open_dict, read_write
    from omegaconf.errors import InterpolationToMissingValueError

    composed = deepcopy(kept)
    ConfigLoaderImpl._apply_overrides_to_config(list(values), composed)
    choices = dict(composed.hydra.runtime.choices)
    run_dir = "runs/unnamed"  # if a value is missing that names it: that is reported, and there will be no run
    if final:
        HydraConfig.instance().set_config(composed)  # lets ${hydra:…} resolve
        with suppress(InterpolationToMissingValueError):
            run_dir = str(composed.hydra.run.dir)
        hydra = cast("DictConfig", HydraConfig.get())
        with read_write(hydra):
            hydra.run.dir = run_dir  # otherwise `${hydra:run.dir}` would be resolved at another time
    with open_dict(composed):
        del composed["hydra"]
    config = OmegaConf.to_container(composed, resolve=final)
    assert isinstance(config, dict)
    return Composition({str(key): value for key, value in config.items()}, run_dir, choices)


def _composed(folders: ConfigFolders, lines: Sequence[str]) -> tuple[DictConfig, list[Override]]:
    """The kept composition of the groups in `lines`, and the values that must be applied to a copy of it."""
    overrides, problems = parse(lines)
    assert not problems, problems
    values = [override for override in overrides if not is_group(override, folders)]
    choices = tuple(str(override.input_line) for override in overrides if is_group(override, folders))
    kept = None if any(map(_needs_hydra, values)) else _kept(folders, choices, folders.stamp(), Path.cwd())
    return (_compose(folders, lines), []) if kept is None else (kept, values)


def _needs_hydra(override: Override) -> bool:
    """Whether only Hydra can apply the override: Hydra's node may refer to any line, and Hydra checks packages."""
    line = str(override.input_line)
    # Every case of a sweep has a plain text for `hydra.run.dir`, which changes nothing else.
    plain = line.startswith("hydra.run.dir=") and "${hydra" not in line and isinstance(override.value(), str)
    return override.package is not None or ("hydra" in line and not plain)


@lru_cache(maxsize=256)
def _kept(folders: ConfigFolders, choices: tuple[str, ...], stamp: int, cwd: Path) -> DictConfig | None:
    """The kept composition, which must not be changed; None if a file refers to the lines that were typed.

    `stamp` changes with the files, and `cwd` is a key because Hydra notes it.
    """
    from omegaconf import OmegaConf

    composed = _compose(folders, choices)
    plain: Any = OmegaConf.to_container(composed)
    text = repr((plain.pop("hydra")["run"]["dir"], plain))
    return None if re.search(r"\$\{hydra[:.](job|overrides)", text) else composed


def _compose(folders: ConfigFolders, lines: Sequence[str]) -> DictConfig:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    own, *more = folders.folders
    search = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in more)}]"] if more else []
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(own), version_base="1.3"):
        return compose("config", [*search, *lines], return_hydra_config=True)


def register_resolvers() -> None:
    """Register the resolvers that `conf/config.yaml` uses in addition to Hydra's own."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("first_of", _first_of, replace=True)


def _first_of(*words: object) -> str:
    """The first of its arguments that is set, as part of a folder's name; a resolver for `conf/config.yaml`."""
    return next((str(word) for word in words if word not in (None, "null", "")), "run")


def missing(node: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Keys whose value must be given (`???`), by their dotted names."""
    nested = [missing(value, f"{prefix}{key}.") for key, value in node.items() if isinstance(value, Mapping)]
    own = [f"{prefix}{key}" for key, value in node.items() if value == "???"]
    return own + [key for keys in nested for key in keys]
