"""`gnnexp info`: what is installed, and what this machine can run."""

from __future__ import annotations

import argparse

import psutil
from rich.table import Table

from gnnexp.cli.console import made_table, make_console
from gnnexp.cli.running.provenance import LIBRARIES, code_version, library_versions
from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import read
from gnnexp.experiment.packages import install_command
from gnnexp.preparation.artifacts import cache_root
from gnnexp.provenance.machine import hardware


def main(options: argparse.Namespace) -> int:
    """Print machine, libraries and systems."""
    console = make_console()
    machine = hardware()
    console.print(f"gnnexp {code_version()}", soft_wrap=True)
    console.print(f"{machine['cpu']}, {machine['cores']} cores ({machine['threads']} threads), "
                  f"{psutil.virtual_memory().available / 2**30:.1f} of {machine['ram_bytes'] / 2**30:.1f} GiB free",
                  soft_wrap=True)
    console.print(f"GPUs: {', '.join(machine['gpus']) or 'none'}; CUDA in torch: {_cuda()}", soft_wrap=True)
    console.print(f"artifact cache: {cache_root()}", soft_wrap=True)
    console.print(_libraries())
    console.print(_systems())
    return 0


def _cuda() -> str:
    import torch

    return f"{torch.version.cuda}, {torch.cuda.device_count()} devices" if torch.cuda.is_available() else "not usable"


def _libraries() -> Table:
    versions = library_versions()
    modules = {"hydra-core": "hydra", "scikit-learn": "sklearn"}
    return made_table(("library", "version"), (
        (name, versions.get(name) or f"not installed: {install_command(modules.get(name, name))}")
        for name in ("python", *LIBRARIES)), "libraries")


def _systems() -> Table:
    """A table of all systems, each checked in its default configuration."""
    rows = []
    for system in sorted(find_folders(None).choices("system")):
        try:
            problems = list(read(compose([f"system={system}"]).config).problems)
        except ConfigError as error:
            problems = list(error.problems)
        rows.append((system, " ".join(f"no: {problems[0]}".split()) if problems else "yes"))
    return made_table(("system", "runs here"), rows, "systems")
