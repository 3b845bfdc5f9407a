"""`gnnexp export` and `gnnexp import`: records of sweeps as one file, to be kept or given away."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnexp.cli.console import make_console
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.archive import pack
from gnnexp.record.importing import unpack

_SUFFIX = ".tar.xz"


def export(options: argparse.Namespace) -> int:
    """One file for all the sweeps named."""
    file = Path(options.out or f"{options.names[0]}{_SUFFIX}")
    if not file.name.endswith(_SUFFIX):
        raise ConfigError(Problem("--out", str(file), f"must end with {_SUFFIX}", f"--out {file}{_SUFFIX}"))
    count = pack(options.names, file)
    make_console().print(f"{count} runs, {file.stat().st_size / 1e3:.0f} kB: {file}", soft_wrap=True)
    return 0


def bring(options: argparse.Namespace) -> int:
    """The runs of some files, below `runs/`."""
    missing = [Problem("import", name, "no such file", "correct the path") for name in options.files
               if not Path(name).is_file()]
    if missing:
        raise ConfigError(missing)
    for name in options.files:
        new, known = unpack(Path(name))
        make_console().print(f"{name}: {new} new runs, {known} were here", soft_wrap=True)
    return 0
