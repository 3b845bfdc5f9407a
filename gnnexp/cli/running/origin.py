"""`gnnexp run --from RUN_DIR`: the same run again, or with changes, from what its record says."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnexp.components.texts import hydra_value
from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.errors import ConfigError, GnnexpError, Problem

CONFIG_FILE = "config.yaml"
# Keys that say where and how a run is executed and recorded.
_PLACES = ("hardware", "tracker", "preflight", "name")
_MOST_NAMED = 5


def with_origin(options: argparse.Namespace) -> argparse.Namespace:
    """`options` with the overrides of the run that `--from` names, before those that were typed.

    A run that was made here gives the overrides that were typed for it. An imported run, or a record without them,
    gives its resolved configuration. What may differ today is printed on standard error.

    Raises:
        ConfigError: there is no such run, it belongs to another user, or its folder of configurations is missing.
    """
    if not options.origin:
        if options.trust:
            raise ConfigError(
                Problem("--trust", "without --from", "is about the record that --from names", "leave it out")
            )
        return options
    from gnnexp.cli.sweeping.definition import last_of_each_key

    run_dir = _run_dir(options.origin)
    job = _job(run_dir, trust=options.trust)
    recorded = _typed(job["provenance"], options.config_dir) or _resolved(job)
    again = argparse.Namespace(**{**vars(options), **recorded, "origin": None, "trust": False})
    other_data = any(line.lstrip("+~").partition("=")[0].partition(".")[0] == "dataset" for line in options.overrides)
    for line in _differences(run_dir, job, again, other_data=other_data):
        print(f"gnnexp: {run_dir}: {line}", file=sys.stderr)
    again.overrides = list(last_of_each_key([*again.overrides, *options.overrides]))
    return again


def _run_dir(word: str) -> Path:
    """The run directory that a user names: itself, `latest`, or its `config.yaml`."""
    from gnnexp.cli.runs import named_run

    path = named_run(word)
    return path.parent if path.name == CONFIG_FILE else path


def _job(run_dir: Path, *, trust: bool) -> Mapping[str, Any]:
    """The record of the run.

    Raises:
        ConfigError: it is no run, or its record may name code that this user did not choose.
    """
    from gnnexp.cli.runs import read_job
    from gnnexp.record.archive import imported_from
    from gnnexp.record.owner import check_own

    job = read_job(run_dir)
    if not trust:
        does = "would execute the code and commands that its configuration names"
        fix = f"read its {CONFIG_FILE}; then gnnexp run --from {shlex.quote(str(run_dir))} --trust"
        check_own(run_dir, does, fix)
        if source := imported_from(job["provenance"]):
            raise ConfigError(Problem("--from", str(run_dir), f"was imported from {source}: gnnexp {does}", fix))
    return job


def _typed(provenance: Mapping[str, Any], config_dir: str | None) -> dict[str, Any]:
    """The options of the command that reproduces a run which was made here; empty if its record does not say them.

    Raises:
        ConfigError: the folder of configurations that it used is missing.
    """
    from gnnexp.cli.main import make_parser
    from gnnexp.record.archive import imported_from

    words = shlex.split(str(provenance.get("reproduce") or ""))
    words = words[words.index("gnnexp") + 1 :] if "gnnexp" in words else []
    if imported_from(provenance) or words[:1] != ["run"]:
        return {}
    typed, rest = make_parser().parse_known_args(words)
    if any(word.startswith("-") for word in rest):
        return {}
    folder = config_dir or typed.config_dir
    if folder and not config_dir and not os.path.isdir(folder):  # noqa: PTH112  `~` is Hydra's
        absolute = Path(str(provenance.get("cwd") or ""), folder)
        if not absolute.is_dir():
            raise ConfigError(
                Problem(
                    "--config-dir",
                    folder,
                    "the run used this folder, which does not exist any more",
                    "name the folder of today: --config-dir DIR",
                )
            )
        folder = str(absolute)
    return {"overrides": [*typed.overrides, *rest], "config_dir": folder, "config_name": typed.config_name}


def _resolved(job: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides that make the recorded configuration: its choices, and every value that these do not give."""
    from gnnexp.config.compose import draft
    from gnnexp.config.folders import find_folders
    from gnnexp.provenance.older import as_today

    folders = find_folders(None)
    choices = {
        group: choice
        for group, choice in job["provenance"].get("choices", {}).items()
        if group in folders.groups() and choice in folders.choices(group) and group != "tracker"
    }
    lines = [f"{group}={choice}" for group, choice in choices.items()]
    base = draft(lines).composed
    wanted = {group: node for group, node in as_today(job["config"]).items() if group != "tracker"}
    return {"overrides": [*lines, *_changes(wanted, {} if base is None else base.config)]}


def _changes(wanted: Mapping[str, Any], base: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Overrides that turn `base` into `wanted`."""
    for key, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            yield from _changes(value, base[key], f"{prefix}{key}.")
        elif key not in base or value != base[key]:
            yield f"++{prefix}{key}={hydra_value(value)}"
    if prefix:
        yield from (f"~{prefix}{key}" for key in base if key not in wanted)


def _differences(
    run_dir: Path, job: Mapping[str, Any], again: argparse.Namespace, *, other_data: bool
) -> Iterator[str]:
    """What may make the run another one today: its code, the YAML files, its data, and the places that it names.

    With `other_data`, the user has asked for other data.
    """
    from gnnexp.config.compose import compose
    from gnnexp.provenance.code import code_of_config
    from gnnexp.provenance.older import as_today
    from gnnexp.provenance.recorded import is_of_other_version, own_of
    from gnnexp.provenance.versions import code_version
    from gnnexp.reports.labels import flat_values

    provenance = job["provenance"]
    try:
        config = compose(again.overrides, again.config_dir, again.config_name).config
        before, now = own_of(provenance.get("code")), code_of_config(config).own
    except GnnexpError:  # the run itself reports this
        return
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if names or is_of_other_version(provenance):
        yield (
            f"made by gnnexp {provenance.get('code_version')}, this is {code_version()}: other code of "
            f"{', '.join(names[:_MOST_NAMED]) or 'gnnexp'}; results may differ"
        )
    old, new = flat_values(as_today(job["config"])), flat_values(config)
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key) and not key.startswith(_PLACES)]
    for key in differing[:_MOST_NAMED]:
        yield f"{key} was {old.get(key, 'not there')}, today it is {new.get(key, 'not there')}"
    if len(differing) > _MOST_NAMED:
        yield f"{len(differing) - _MOST_NAMED} more keys differ"
    if not other_data:
        yield from _changed_data(run_dir, job)
    root = next(
        (
            word.partition("=")[2]
            for word in shlex.split(str(provenance.get("reproduce") or ""))
            if word.startswith(f"{ROOT_VARIABLE}=")
        ),
        None,
    )
    if root and root != os.environ.get(ROOT_VARIABLE):
        yield f"its data was in {ROOT_VARIABLE}={root}, which is {os.environ.get(ROOT_VARIABLE, 'not set')} here"


def _changed_data(run_dir: Path, job: Mapping[str, Any]) -> Iterator[str]:
    """How the files of the run's dataset have changed."""
    from gnnexp.datasets.base import Dataset
    from gnnexp.experiment.build import build
    from gnnexp.provenance.older import as_today
    from gnnexp.record.changes import changed_data

    try:
        dataset = build(as_today(job["config"])["dataset"], Dataset)
    except (GnnexpError, ImportError):  # the run itself reports this
        return
    if said := changed_data(run_dir, job["provenance"], dataset):
        yield f"{said}; results may differ"
