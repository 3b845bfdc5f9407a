"""`gnnexp list KIND`: the names that a user can choose from, each with one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml
from rich.console import Console

from gnnexp.cli.console import made_table, make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.runs import RUN_HEADER, SHOWN, RunSummary, list_runs, newest
from gnnexp.components.signature import unknown
from gnnexp.config.folders import ConfigFolders, find_folders, product_folder, product_sweeps
from gnnexp.config.plugins import note_left_out
from gnnexp.errors import ConfigError
from gnnexp.files.regular import read_limited

_RUNS, _SWEEPS = "runs", "sweeps"
_LIMIT = 1 << 20
_PACKAGE = "# @package"


def main(options: argparse.Namespace) -> Answer:
    """List the choices of a group, the sweeps, or the runs.

    Raises:
        ConfigError: there is no such kind.
    """
    folders = find_folders(options.config_dir)
    note_left_out(folders.plugins)
    kinds = {_RUNS: _RUNS, _SWEEPS: _SWEEPS, **{name: group for group in folders.groups() for name in _names(group)}}
    if options.kind is None:
        return list_kinds(folders)
    if options.kind not in kinds:
        raise ConfigError(unknown("list", options.kind, options.kind, kinds))
    kind = kinds[options.kind]
    if kind == _RUNS:
        paths = newest()
        return tell_runs(list_runs(paths if options.all else paths[:SHOWN]), len(paths), make_console())
    return sweeps_answer() if kind == _SWEEPS else list_choices(kind, folders)


def list_kinds(folders: ConfigFolders) -> Answer:
    """Everything that can be listed, with numbers."""
    counts = {
        _RUNS: len(newest()),
        _SWEEPS: len(product_sweeps()),
        **{group: len(folders.choices(group)) for group in sorted(folders.groups())},
    }
    rows = [(kind, str(count)) for kind, count in counts.items()]
    make_console().print(made_table(("kind", "number"), rows, "gnnexp list KIND"))
    return Answer({"kinds": [{"kind": kind, "number": count} for kind, count in counts.items()]})


def list_choices(group: str, folders: ConfigFolders) -> Answer:
    """The choices of a group. Each has the first comment of its file."""
    own, choices = product_folder("conf").resolve(), []
    for choice in sorted(folders.choices(group)):
        file = folders.file_of(group, choice)
        plugin = folders.plugins.of_file(file)
        choices.append(
            {
                "name": choice,
                "about": first_comment(file),
                "file": "" if file.resolve().is_relative_to(own) else str(file),
                "package": "" if plugin is None else f"{plugin.distribution} {plugin.version}",
            }
        )
    rows = [
        (
            entry["name"],
            entry["about"],
            *([entry["package"] or entry["file"]] if any(each["file"] for each in choices) else []),
        )
        for entry in choices
    ]
    whose = "your file, or its package" if any(entry["package"] for entry in choices) else "your file"
    header = (group, "what it is", whose)[: len(rows[0]) if rows else 2]
    make_console().print(made_table(header, rows, f"choose one: {group}=NAME"))
    return Answer({"group": group, "choices": choices})


def sweeps_answer() -> Answer:
    """The sweeps of gnnexp, with their descriptions."""
    found = [{"name": name, "about": _description(file), "file": str(file)} for name, file in product_sweeps().items()]
    rows = [(one["name"], one["about"]) for one in found]
    make_console().print(made_table(("sweep", "what it is"), rows, "gnnexp sweep NAME"))
    return Answer({"sweeps": found})


def tell_runs(lines: Sequence[RunSummary], total: int, console: Console) -> Answer:
    """Print a table of runs, of which there may be more."""
    if lines:
        console.print(made_table(RUN_HEADER, [line.cells() for line in lines]))
    if not lines:
        console.print(f"no run in {Path('runs').resolve()}: gnnexp run", soft_wrap=True)
    if total > len(lines):
        console.print(f"{len(lines)} of {total} runs, the last ones: --all shows all", soft_wrap=True)
    return Answer({"total": total, "runs": [asdict(line) for line in lines]})


def first_comment(file: Path) -> str:
    """The first comment of a YAML file, without the line that names its package; empty if there is none."""
    try:
        lines = read_limited(file, _LIMIT).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    first = next((line for line in lines if line.strip() and not line.startswith(_PACKAGE)), "")
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def _description(file: Path) -> str:
    try:
        content = yaml.safe_load(read_limited(file, _LIMIT))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(content.get("description", "")) if isinstance(content, dict) else ""


def _names(group: str) -> tuple[str, ...]:
    """The names by which a group is listed: `system` and `systems`."""
    return group, f"{group}s"
