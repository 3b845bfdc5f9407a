"""Hydra's flags of `gnnexp run`: `--cfg`, `--resolve`, `--package`, `--info` and `--shell-completion`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from gnnexp.cli.commands.completion import SHELLS, script
from gnnexp.cli.output import Answer
from gnnexp.components.signature import unknown
from gnnexp.config.compose import ComposedConfig
from gnnexp.config.composition import composed_by_hydra, hydra_of, in_problems
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError, Problem


def show_flags(options: argparse.Namespace) -> Answer:
    """Print what the flags of `gnnexp run` ask for. The answer to `--cfg --json` is the resolved configuration.

    Raises:
        ConfigError: flags do not fit together, or `gnnexp run` refuses the configuration. A missing value is no reason.
    """
    if options.shell_completion:
        _complete(options)
        return Answer({"exit_code": 0})
    if not (options.cfg or options.info):
        flag = "--resolve" if options.resolve else "--package"
        raise ConfigError(Problem(flag, "without --cfg", "is for --cfg", "add --cfg job"))
    from gnnexp.cli.running.prepare import shown as checked

    composed = checked(options.overrides, options.config_dir, options.config_name)
    lines = list(composed.lines)
    from hydra.types import RunMode

    with in_problems("configuration", lines, composed.folders), hydra_of(composed.folders) as hydra:
        if options.info:
            mode = RunMode.MULTIRUN if options.multirun else RunMode.RUN
            hydra.show_info(options.info, composed.folders.primary, lines, mode)
            return Answer({"exit_code": 0})
        if _is_null(options.package, composed, lines):
            print("null")
            return Answer(composed.config)
        shown, resolve = ("job", True) if options.cfg == "resolved" else (options.cfg, options.resolve)
        if (options.package or "").partition(".")[0] == "hydra" and shown == "job":
            shown = "all"  # the job's configuration is without Hydra's own
        hydra.show_cfg(composed.folders.primary, lines, shown, options.package, resolve)
    return Answer(composed.config)


def _is_null(package: str | None, composed: ComposedConfig, lines: Sequence[str]) -> bool:
    """Whether this part of the configuration is null. Hydra would end the process then, and if there is no such part.

    Raises:
        ConfigError: there is no such part.
    """
    from omegaconf import OmegaConf

    if package in (None, "_global_"):
        return False
    part: Any = OmegaConf.to_container(composed_by_hydra(composed.folders, lines))
    above = ""
    for key in str(package).split("."):
        keys = [f"{above}{name}" for name in part] if isinstance(part, dict) else []
        if f"{above}{key}" not in keys:
            raise ConfigError(unknown("--package", package, f"{above}{key}", keys))
        part, above = part[key], f"{above}{key}."
    return part is None


def _complete(options: argparse.Namespace) -> None:
    """Print a shell's script, or the words that complete `$COMP_LINE`."""
    task, _, shell = (options.overrides or [""])[0].partition("=")
    if len(options.overrides) != 1 or task not in ("install", "uninstall", "query") or shell not in SHELLS:
        raise ConfigError(
            Problem(
                "--shell-completion",
                " ".join(options.overrides),
                f"takes install=SHELL, uninstall=SHELL or query=bash, with {' or '.join(SHELLS)}",
                'eval "$(gnnexp completion bash)"',
            )
        )
    if task == "install":
        print(script(shell))
    elif task == "uninstall":
        print("complete -r gnnexp; unset -f _gnnexp_completion")
    elif "COMP_LINE" in os.environ:
        folders = find_folders(options.config_dir, options.config_name)
        with hydra_of(folders) as hydra:
            hydra.shell_completion(folders.primary, ["query=bash"])
    else:
        raise ConfigError(
            Problem(
                "--shell-completion",
                options.overrides[0],
                "needs COMP_LINE, which a shell sets",
                "gnnexp completion bash",
            )
        )
