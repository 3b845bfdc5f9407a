"""Turns overrides into one resolved, plain configuration, and finds every mistake in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnexp.config.composition import Composition, composition, missing
from gnnexp.config.folders import PRIMARY, ConfigFolders, FolderListing, find_folders, own_folders
from gnnexp.config.overrides import FIXED, admit, choice_problem, hydra_line, is_group, parse
from gnnexp.errors import ConfigError, Problem

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

# At most this many values of one key in a sweep; a range may have more values than fit into memory.
_MAX_VALUES = 10_000


@dataclass(frozen=True)
class ComposedConfig:
    """A resolved configuration with its origin.

    Attributes:
        config: plain dicts, lists and scalars: the groups, and `seed`, `system`, `name`.
        run_dir: directory of the run (`hydra.run.dir`), which does not exist yet.
        choices: name of the chosen file of each group, None for a null choice.
        overrides: overrides as typed.
        config_dir: folder of YAML files that the command names.
        folders: the folders that were searched.
        lines: the overrides as Hydra takes them.
    """

    config: dict[str, Any]
    run_dir: Path
    choices: dict[str, str | None]
    overrides: tuple[str, ...]
    config_dir: str | None
    folders: ConfigFolders
    lines: tuple[str, ...]

    @property
    def system(self) -> str:
        """The name of the system, as reports have it: without one, the choice of its paradigm."""
        return str(self.config.get("system") or self.choices.get("paradigm"))


def composed_from_json(document: Mapping[str, Any]) -> ComposedConfig:
    """The configuration that was written as `asdict` gives it, in JSON."""
    folders = ConfigFolders(tuple(map(Path, document["folders"]["folders"])), document["folders"]["primary"])
    return ComposedConfig(
        **{
            **document,
            "run_dir": Path(document["run_dir"]),
            "folders": folders,
            "overrides": tuple(document["overrides"]),
            "lines": tuple(document["lines"]),
        }
    )


@dataclass(frozen=True)
class Draft:
    """A configuration made of the correct overrides: a mistake in one does not hide mistakes in others.

    Attributes:
        composed: the configuration without the wrong overrides, with defaults in their place; None if there is none.
        problems: problems of the overrides and of the files that they choose.
        unsure: groups whose choice is unknown; their content in `composed` is not what the user asked for.
    """

    composed: ComposedConfig | None
    problems: tuple[Problem, ...] = ()
    unsure: frozenset[str] = frozenset()


def compose(overrides: Sequence[str], config_dir: str | None = None, config_name: str = PRIMARY) -> ComposedConfig:
    """Compose `conf/config.yaml` with `overrides` in Hydra's grammar.

    A key that its YAML file does not list needs no `+` if the constructor has it.

    Args:
        overrides: `group=choice`, `group.key=value`.
        config_dir: a user's folder with further `<group>/<choice>.yaml`, searched before all others.
        config_name: the file to start from.

    Raises:
        ConfigError: there are syntax errors, unknown choices, unknown keys or missing values; all are reported.
    """
    drafted = draft(overrides, config_dir, config_name)
    ConfigError.raise_all(drafted.problems)
    assert drafted.composed is not None
    return drafted.composed


def default_of(group: str) -> Mapping[str, Any]:
    """The choice of `conf/base.yaml` for a group."""
    node: Mapping[str, Any] = compose([]).config[group]
    return node


def draft(overrides: Sequence[str], config_dir: str | None = None, config_name: str = PRIMARY) -> Draft:
    """Compose as much as possible; see `compose`."""
    folders, problems = _folders(config_dir, config_name)
    lost = bool(problems)  # what looks unknown may be in the user's files
    parsed, syntax = parse(overrides)
    listing = folders.listing()
    choices = {hydra_line(override): override for override in parsed if is_group(override, listing.groups)}
    try:
        listed = _chosen(folders, (), listing).contents.choices
        wrong = {
            line: problem
            for line, override in choices.items()
            if (problem := choice_problem(override, folders, listed))
        }
        problems += [*syntax, *(() if lost else wrong.values())]
        base = _chosen(folders, tuple(line for line in choices if line not in wrong), listing)
    except ConfigError as error:
        return Draft(None, (*problems, *error.problems), listing.groups)
    problems += base.culprits.values()
    meant = {line: str(override.key_or_group) for line, override in choices.items()}
    good = [line for line in choices if line not in wrong and line not in base.culprits]
    unread = [problem.key.partition("=")[0].lstrip("+~") for problem in syntax]
    unsure = _unsure(
        listing.groups,
        [*unread, *(meant[line] for line in choices if line not in good)],
        [meant[line] for line in good],
    )
    values = [override for override in parsed if hydra_line(override) not in choices]
    lines, unknown = _admitted(
        values, base.contents.config, folders, unsure, lambda line: _composes(folders, good, line, base.contents.config)
    )
    return _finish(folders, good, lines, [*problems, *unknown], unsure, (tuple(overrides), config_dir), listing)


def _folders(config_dir: str | None, config_name: str) -> tuple[ConfigFolders, list[Problem]]:
    try:
        return find_folders(config_dir, config_name), []
    except ConfigError as error:
        return own_folders(), list(error.problems)


def _unsure(groups: frozenset[str], wrong: Sequence[str], chosen: Sequence[str]) -> frozenset[str]:
    """Groups whose choice is wrong; with an unknown system, also the groups that it might have chosen."""
    unsure = groups.intersection(wrong)
    return unsure | (groups - set(chosen)) if "system" in unsure else unsure


def _admitted(
    values: Sequence[Override],
    base: Mapping[str, Any],
    folders: ConfigFolders,
    unsure: frozenset[str],
    composes: Callable[[str], bool],
) -> tuple[list[str], list[Problem]]:
    """Overrides that Hydra will accept, and problems of the others; overrides of unsure groups are left out."""
    lines, problems = [], []
    for override in values:
        group, _, rest = str(override.key_or_group).partition(".")
        if group in unsure and (group not in FIXED or rest.startswith("launcher.")):
            continue
        line, problem = admit(override, base, folders, composes)
        if problem:
            problems.append(problem)
        else:
            lines.append(line)
    return lines, problems


def _composes(folders: ConfigFolders, groups: Sequence[str], line: str, base: Mapping[str, Any]) -> bool:
    """Whether an override that a message would propose is right in this configuration.

    Its key must exist, and its value must fit. Without a value, only the key is checked.
    """
    from gnnexp.experiment.build import read

    key, _, value = line.partition("=")
    parsed, problems = parse([line if value else f"{key}=null"])
    if problems:
        return False
    admitted, problem = admit(parsed[0], base, folders, lambda _: False)
    if problem or not value:
        return problem is None
    try:
        composed = composition(folders, [*groups, admitted], final=True)
    except ConfigError:
        return False
    return all(problem_of_line.key != key for problem_of_line in read(composed.config).problems)


def _finish(
    folders: ConfigFolders,
    groups: list[str],
    lines: list[str],
    problems: list[Problem],
    unsure: frozenset[str],
    source: tuple[tuple[str, ...], str | None],
    listing: FolderListing,
) -> Draft:
    """The final, resolved composition of everything that is correct."""
    try:
        kept = _without_culprits(folders, groups, lines, listing, final=True)
    except ConfigError as error:
        return Draft(None, (*problems, *error.problems), unsure)
    problems += kept.culprits.values()
    config, run_dir, chosen = kept.contents
    problems += [
        Problem(key, "???", "has no default", f"set {key}=…")
        for key in missing(config)
        if key.partition(".")[0] not in unsure
    ]
    listed = _chosen(folders, (), listing).contents.choices
    choice_of = {**dict.fromkeys(listed), **chosen}
    choices = {
        group: None if choice is None else str(choice)
        for group, choice in sorted(choice_of.items())
        if not group.startswith("hydra/")
    }
    composed = ComposedConfig(config, Path(run_dir), choices, *source, folders, (*groups, *lines))
    return Draft(composed, tuple(problems), unsure)


def expand_values(overrides: Sequence[str]) -> list[list[str]]:
    """Each override as the list of its values: `a=1,2` gives `[a=1, a=2]`; `a=[1,2]` and `a=1` give one value.

    Raises:
        ConfigError: there are syntax errors (all are reported), or a range is endless.
    """
    from hydra.core.override_parser.types import Glob

    parsed, problems = parse(overrides)
    ConfigError.raise_all(problems)
    expanded = []
    for override in parsed:
        if isinstance(override.value(), Glob):
            line = str(override.input_line)
            raise ConfigError(Problem(line, line, "glob(…) is for gnnexp run -m", "list the values"))
        if override.is_sweep_override():
            values = list(islice(override.sweep_string_iterator(), _MAX_VALUES + 1))
            if len(values) > _MAX_VALUES:
                line = str(override.input_line)
                raise ConfigError(Problem(line, line, f"at most {_MAX_VALUES} values", "give a shorter range"))
            expanded.append([f"{override.get_key_element()}={value}" for value in values])
        else:
            expanded.append([str(override.input_line)])
    return expanded


@lru_cache(maxsize=256)
def _chosen(folders: ConfigFolders, lines: tuple[str, ...], listing: FolderListing) -> _PartialComposition:
    """The composition of chosen groups, unresolved. It is cached and must not be changed: cases of a sweep share it."""
    return _without_culprits(folders, [], list(lines), listing, final=False)


class _PartialComposition(NamedTuple):
    """A composition, and the lines that were left out of it, with their problems."""

    contents: Composition
    culprits: dict[str, Problem]


def _without_culprits(
    folders: ConfigFolders, groups: list[str], lines: list[str], listing: FolderListing, *, final: bool
) -> _PartialComposition:
    """The configuration of those `lines` that can be composed, and the problems of the others.

    Raises:
        ConfigError: the lines cannot be composed together, although each of them can.
    """
    try:
        return _PartialComposition(composition(folders, [*groups, *lines], final=final, listing=listing), {})
    except ConfigError as error:
        culprits = {line: problem for line in lines if (problem := _alone(folders, groups, line, final=final))}
        if not culprits:
            raise error from None
    good = [line for line in lines if line not in culprits]
    return _PartialComposition(composition(folders, [*groups, *good], final=final, listing=listing), culprits)


def _alone(folders: ConfigFolders, groups: list[str], line: str, *, final: bool) -> Problem | None:
    try:
        composition(folders, [*groups, line], final=final)
    except ConfigError as error:
        key, _, value = line.partition("=")
        return replace(error.problems[0], key=key.lstrip("+"), value=value)
    return None
