"""`gnnexp info`: what is installed, and what this machine can run."""

from __future__ import annotations

import argparse

from gnnexp.cli.console import made_table, make_console
from gnnexp.cli.output import Answer
from gnnexp.components.packages import OF_SYSTEMS, install_command, is_installed
from gnnexp.config.folders import find_folders, product_folder
from gnnexp.errors import ConfigError, Refusal
from gnnexp.files.cache import cache_root
from gnnexp.measure.available import available_memory, total_memory
from gnnexp.provenance.machine import hardware
from gnnexp.provenance.versions import LIBRARIES, code_version, library_versions


def main(options: argparse.Namespace) -> Answer:
    """Print machine, libraries and systems."""
    console = make_console()
    machine, free, cuda = hardware(), available_memory(), _cuda()
    libraries, systems = _libraries(), _systems()
    console.print(f"gnnexp {code_version()}", soft_wrap=True)
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores ({machine['threads']} threads), "
        f"{free / 2**30:.1f} of {_memory(machine['ram_bytes'])} free",
        soft_wrap=True,
    )
    console.print(f"GPUs: {', '.join(machine['gpus']) or 'none'}; CUDA in torch: {cuda}", soft_wrap=True)
    console.print(f"artifact cache: {cache_root()}", soft_wrap=True)
    console.print(
        made_table(
            ("library", "version"),
            ((name, version or f"not installed: {_how_to_install(name)}") for name, version in libraries.items()),
            "libraries",
        )
    )
    console.print(
        made_table(
            ("system", "runs here"),
            ((system, f"no: {why}" if why else "yes") for system, why in systems.items()),
            "systems",
        )
    )
    return Answer(
        {
            "version": code_version(),
            "machine": machine,
            "free_ram_bytes": free,
            "cuda": cuda,
            "cache": str(cache_root()),
            "libraries": libraries,
            "systems": [
                {"system": system, "runs_here": not why, "problem": str(why or "")} for system, why in systems.items()
            ],
        }
    )


def _memory(machine: int) -> str:
    """The memory that this process may use, in words; `machine` is that of the machine, in bytes."""
    own = total_memory()
    limit = f" (the limit of a control group; the machine has {machine / 2**30:.1f} GiB)" if own < machine else ""
    return f"{own / 2**30:.1f} GiB{limit}"


def _cuda() -> str:
    import torch

    return f"{torch.version.cuda}, {torch.cuda.device_count()} devices" if torch.cuda.is_available() else "not usable"


def _libraries() -> dict[str, str | None]:
    """Versions of the libraries that gnnexp can use; None for those that are not installed."""
    versions = library_versions()
    return {name: versions.get(name) for name in ("python", *LIBRARIES)}


def _how_to_install(library: str) -> str:
    modules = {"hydra-core": "hydra", "scikit-learn": "sklearn"}
    return install_command(modules.get(library, library))


def _systems() -> dict[str, Refusal | None]:
    """Why each system does not run here in its default configuration; None if it does.

    A system of gnnexp runs wherever all packages are installed that systems need (tests/cli/test_info.py), so it is
    composed only if one is missing. That takes a quarter of a second per system.
    """
    folders, own = find_folders(None), {file.stem for file in (product_folder("conf") / "system").glob("*.yaml")}
    of_users = [folder for folder in folders.theirs if folders.plugins.of_file(folder) is None]
    complete = not of_users and all(map(is_installed, OF_SYSTEMS))
    return {
        system: None if complete and system in own else _refusal_of(system)
        for system in sorted(folders.choices("system"))
    }


def _refusal_of(system: str) -> Refusal | None:
    from gnnexp.config.compose import compose
    from gnnexp.experiment.build import read

    try:
        problems = list(read(compose([f"system={system}"]).config).problems)
    except ConfigError as error:
        problems = list(error.problems)
    return Refusal(" ".join(str(problems[0]).split())) if problems else None
