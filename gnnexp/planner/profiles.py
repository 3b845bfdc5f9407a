"""Hardware profiles by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from gnnexp.config.compose import compose
from gnnexp.config.folders import product_folder
from gnnexp.config.signature import unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.planner.machine import Machine, machine_of


@cache
def machine_named(name: str) -> Machine:
    """The machine of `hardware=<name>`.

    Raises:
        ConfigError: there is no such profile, or it does not say what an estimate needs.
    """
    known = sorted(file.stem for file in (product_folder("conf") / "hardware").glob("*.yaml"))
    if name not in known:
        raise ConfigError(unknown("--hardware", name, name, known))
    return machine_of(name, compose([f"hardware={name}"]).config["hardware"])


def machines_named(names: Sequence[str]) -> list[Machine]:
    """All of them, or all that is wrong with any.

    Raises:
        ConfigError: see `machine_named`.
    """
    found: list[Machine] = []
    problems: list[Problem] = []
    for name in names:
        try:
            found.append(machine_named(name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found
