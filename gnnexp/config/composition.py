"""Hydra's composition, with a user's folders before gnnexp's own, as plain dicts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gnnexp.config.folders import ConfigFolders, FolderListing
from gnnexp.config.yaml_files import is_yaml, yaml_files
from gnnexp.errors import ConfigError, Problem

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
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


def composition(
    folders: ConfigFolders, lines: Sequence[str], *, final: bool, listing: FolderListing | None = None
) -> Composition:
    """Compose `lines`, which are in Hydra's grammar; resolve the result if `final`.

    Args:
        folders: where files are.
        lines: overrides.
        final: whether to resolve.
        listing: what the folders have, if that is known already.

    Raises:
        ConfigError: Hydra or the YAML parser of a file reports an error.
    """
    with in_problems("configuration", lines, folders):
        return _contents(_composed(folders, lines, listing or folders.listing()), final=final)


@contextmanager
def in_problems(key: str, lines: Sequence[str], folders: ConfigFolders) -> Iterator[None]:
    """Raise errors of Hydra, OmegaConf and the YAML parser as a ConfigError about `key`."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except (YAMLError, UnicodeDecodeError) as error:
        files = [str(file) for folder in folders.theirs for file in yaml_files(folder) if not is_yaml(file)]
        reason = f"{', '.join(files) or 'a file'}: not YAML: {' '.join(str(error).split())}"
        raise ConfigError(Problem(key, " ".join(lines), reason, "correct the file")) from None
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        # A file that Hydra does not find may be in a plug-in that is left out.
        lost = error.missing_cfg_file if isinstance(error, MissingConfigException) else None
        group, _, choice = (lost or "").rpartition("/")
        if left_out := folders.plugins.left_out_problem(group, choice):
            raise ConfigError(left_out) from error
        reason = " ".join(f"{error} {error.__cause__ or ''}".split()) or type(error).__name__
        raise ConfigError(Problem(key, " ".join(lines), reason, "correct the override or file")) from error


@lru_cache(maxsize=4096)
def parsed_by_hydra(line: str) -> Override:
    """An override in Hydra's grammar. It is cached and must not be changed: cases of a sweep share many lines."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(line)


def _composed(folders: ConfigFolders, lines: Sequence[str], listing: FolderListing) -> DictConfig:
    """What `composed_by_hydra` makes, in a fraction of its time where the same files were chosen before.

    Hydra reads and merges the chosen files, and then applies the other overrides to what it has. Where an override adds
    files in another way, Hydra does all of it.
    """
    overrides = [parsed_by_hydra(line) for line in lines]
    if any(override.is_sweep_override() or _adds_files(str(override.key_or_group)) for override in overrides):
        return composed_by_hydra(folders, lines)
    chooses = [
        override.key_or_group in listing.groups and not isinstance(override.value(), dict) for override in overrides
    ]
    choices = tuple(line for line, is_choice in zip(lines, chooses, strict=True) if is_choice)
    chosen = _of_choices(folders, choices, listing)
    if any("searchpath" in source.provider for source in chosen.hydra.runtime.config_sources):
        return composed_by_hydra(folders, lines)
    composed = deepcopy(chosen)
    _apply(
        overrides, [override for override, is_choice in zip(overrides, chooses, strict=True) if not is_choice], composed
    )
    return composed


def _adds_files(key: str) -> bool:
    """Whether an override of this key may choose a file that is none of `ConfigFolders.groups`."""
    return key in {"hydra", "hydra.searchpath"} or key.startswith("hydra/")


@lru_cache(maxsize=256)
def _of_choices(folders: ConfigFolders, choices: tuple[str, ...], listing: FolderListing) -> DictConfig:
    """The chosen files, merged by Hydra. It is cached and must not be changed."""
    return composed_by_hydra(folders, choices)


def _apply(overrides: Sequence[Override], values: Sequence[Override], composed: DictConfig) -> None:
    """What Hydra does after it has merged the chosen files (1.3, `ConfigLoaderImpl._load_configuration_impl`)."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
    from omegaconf import open_dict

    ConfigLoaderImpl._apply_overrides_to_config(list(values), composed)
    hydra = composed.hydra
    task = [override for override in overrides if not override.is_hydra_override()]
    hydra.overrides.hydra = [override.input_line for override in overrides if override.is_hydra_override()]
    hydra.overrides.task = [override.input_line for override in task]
    with open_dict(hydra):
        for key in hydra.job.env_copy:
            hydra.job.env_set[key] = os.environ[key]
    hydra.runtime.cwd = os.getcwd()  # noqa: PTH109
    naming = hydra.job.config.override_dirname
    hydra.job.override_dirname = get_overrides_dirname(
        overrides=task, kv_sep=naming.kv_sep, item_sep=naming.item_sep, exclude_keys=naming.exclude_keys
    )


def composed_by_hydra(folders: ConfigFolders, lines: Sequence[str]) -> DictConfig:
    """Hydra's own composition, with the node `hydra`."""
    from hydra import compose

    with hydra_of(folders):
        return compose(folders.primary, list(lines), return_hydra_config=True)


@contextmanager
def hydra_of(folders: ConfigFolders) -> Iterator[Hydra]:
    """Hydra with a search path of `folders`; `initialize_config_dir` would have gnnexp's own folder before a user's."""
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra

    register_resolvers()
    version.setbase("1.3")
    search_path = create_config_search_path(str(folders.folders[-1]))
    for folder in folders.theirs:
        search_path.prepend("user", f"file://{folder}", "main")
    GlobalHydra.instance().clear()
    try:
        yield Hydra.create_main_hydra2("gnnexp", search_path)
    finally:
        GlobalHydra.instance().clear()


def _contents(composed: DictConfig, *, final: bool) -> Composition:
    """The configuration as plain dicts, with the run directory."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, open_dict, read_write
    from omegaconf.errors import InterpolationToMissingValueError

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


def register_resolvers() -> None:
    """Register the resolvers that `conf/base.yaml` uses in addition to Hydra's own."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("first_of", _first_of, replace=True)


def _first_of(*words: object) -> str:
    """The first of its arguments that is set, as part of a folder's name; a resolver for `conf/base.yaml`."""
    return next((str(word) for word in words if word not in (None, "null", "")), "run")


def missing(node: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Keys whose value must be given (`???`), by their dotted names."""
    nested = [missing(value, f"{prefix}{key}.") for key, value in node.items() if isinstance(value, Mapping)]
    own = [f"{prefix}{key}" for key, value in node.items() if value == "???"]
    return own + [key for keys in nested for key in keys]
