"""Explains arguments that a command does not have: `--epochs 3` is the key `train.epochs=3`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from gnnexp.cli.arguments import COMMANDS
from gnnexp.components.signature import nearest
from gnnexp.config.compose import draft
from gnnexp.config.folders import find_folders
from gnnexp.config.hints import keys_elsewhere, lines_of_key
from gnnexp.config.overrides import further_keys
from gnnexp.errors import ConfigError, Problem

_SLIP = 0.8
# At most this many commands that have a mistaken option are named.
_MOST_COMMANDS = 3


def refuse(strange: Sequence[str], typed: Sequence[str], options: argparse.Namespace) -> NoReturn:
    """Report every strange argument of a command.

    Args:
        strange: the arguments that the command does not have.
        typed: all arguments.
        options: what was parsed of the others, with the options of the command as `known`.

    Raises:
        ConfigError: always.
    """
    raise ConfigError([_problem(word, typed, options) for word in strange])


def _problem(word: str, typed: Sequence[str], options: argparse.Namespace) -> Problem:
    command, known = f"gnnexp {typed[0]}", list(options.known)
    if not word.startswith("-"):
        return Problem(word, word, f"{command} has no such argument", f"{command} --help")
    name, _, value = word.partition("=")
    value = value or _next(word, typed)
    keys = _keys(name.lstrip("-").replace("-", "_"), options) if hasattr(options, "overrides") else []
    close = nearest(name, known, _SLIP)
    if keys and (not close or keys[0].rpartition(".")[2] == name.lstrip("-")):
        return Problem(
            *((name, value) if value else ("option", name)),
            f"{command} has no such option; keys of the configuration are written key=value",
            f"write {' or '.join(lines_of_key(keys, value or '…'))}",
        )
    key, shown = (name, value) if value else ("option", name)
    allowed = f"{command} has no such option; it has {', '.join(known) or 'none'}"
    if not close and (others := commands_with(name)):
        subject = next(
            (
                argument
                for argument in typed[1:]
                if not argument.startswith("-") and "=" not in argument and argument != value
            ),
            "",
        )
        lines = [" ".join(filter(None, ("gnnexp", other, subject, name, value))) for other in others[:_MOST_COMMANDS]]
        return Problem(key, shown, allowed, f"did you mean {' or '.join(lines)}?")
    return Problem(key, shown, allowed, f"did you mean {close}?" if close else f"{command} --help")


def commands_with(name: str) -> list[str]:
    """The commands that have the option `name`."""
    return [
        command for command, (_, _, _, arguments) in COMMANDS.items() if any(name in names for names, _ in arguments)
    ]


def _next(word: str, typed: Sequence[str]) -> str:
    """The value after an option, if there is one."""
    after = typed[typed.index(word) + 1 :][:1] if word in typed else []
    return next((one for one in after if not one.startswith("-") and "=" not in one), "")


def _keys(name: str, options: argparse.Namespace) -> list[str]:
    """Keys or groups that the option may mean, in the configuration that the other arguments make."""
    folders = find_folders(None)
    if name in folders.groups():
        return [name]
    drafted = draft([line for line in options.overrides if "=" in line], getattr(options, "config_dir", None))
    if drafted.composed is None:
        return []
    *group, last = name.split(".")
    keys = keys_elsewhere(last, drafted.composed.config, further_keys)
    return [key for key in keys if key.split(".")[:-1] == group] if group else keys
