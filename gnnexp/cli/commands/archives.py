"""`gnnexp export` and `gnnexp import`: records of sweeps as one file, to be kept or given away."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnexp.cli.console import make_console
from gnnexp.cli.running.prepare import check_new_file
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import what_is
from gnnexp.record.archive import pack
from gnnexp.record.importing import unpack

_SUFFIX = ".tar.xz"


def export(options: argparse.Namespace) -> int:
    """One file for all the sweeps named."""
    file = Path(options.out or f"{options.names[0]}{_SUFFIX}")
    problems = check_new_file("--out", file)
    if not file.name.endswith(_SUFFIX):
        problems.append(Problem("--out", str(file), f"must end with {_SUFFIX}", f"--out {file}{_SUFFIX}"))
    if problems:
        raise ConfigError(problems)
    count = pack(options.names, file)
    make_console().print(f"{count} runs, {file.stat().st_size / 1e3:.0f} kB: {file}", soft_wrap=True)
    return 0


def bring(options: argparse.Namespace) -> int:
    """The runs of some files, below `runs/`."""
    wrong = [Problem("import", name, f"must be a file of `gnnexp export`: {why}", "correct the path")
             for name in options.files if (why := what_is(Path(name)))]
    if wrong:
        raise ConfigError(wrong)
    for name in options.files:
        new, known = unpack(Path(name))
        make_console().print(f"{name}: {new} new runs, {known} were here", soft_wrap=True)
    return 0
