"""Hardware profiles by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import hardware_of
from gnnexp.experiment.signature import unknown
from gnnexp.planning.machine import Machine, machine_of

ALL = "all"


@cache
def machine_named(name: str, config_dir: str | None = None) -> Machine:
    """The machine of `hardware=<name>`, of the user's folder too.

    Raises:
        ConfigError: there is no such profile, or it does not say what an estimate needs.
    """
    known = sorted(find_folders(config_dir).choices("hardware"))
    if name not in known:
        raise ConfigError(unknown("--hardware", name, name, [*known, ALL]))
    return machine_of(name, hardware_of(compose([f"hardware={name}"], config_dir).config))


def machines_named(names: Sequence[str], config_dir: str | None = None) -> list[Machine]:
    """All of them, or all that is wrong with any.

    Raises:
        ConfigError: see `machine_named`.
    """
    found: list[Machine] = []
    problems: list[Problem] = []
    for name in names:
        try:
            found.append(machine_named(name, config_dir))
        except ConfigError as error:
            problems += error.problems
    ConfigError.raise_all(problems)
    return found


def all_machines(config_dir: str | None = None) -> tuple[list[Machine], list[str]]:
    """Every profile that says what an estimate needs, and the names of the others."""
    found, untold = [], []
    for name in sorted(find_folders(config_dir).choices("hardware")):
        try:
            found.append(machine_named(name, config_dir))
        except ConfigError:
            untold.append(name)
    return found, untold
