"""`gnnexp calibrate`: measures this machine with our kernels and exchanges, and writes its hardware profile."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gnnexp.cli.console import made_table, make_console, marked
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import new_file_problems
from gnnexp.cli.running.prepare import checked_config
from gnnexp.components.locate import target_of
from gnnexp.components.schema import HardwareConfig
from gnnexp.config.folders import PRIMARY, product_folder
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.cache import cache_root
from gnnexp.launchers.local import LocalLauncher
from gnnexp.planning.calibration import FIGURES, REQUEST
from gnnexp.planning.figures import UNITS, Measurement, figures_of, profile_text, write_profile
from gnnexp.planning.gpu_links import from_facts, link_lines
from gnnexp.planning.probes import QUICK, STEP_OVERRIDES, Extent
from gnnexp.preparation.artifacts import prepare_graph
from gnnexp.provenance.machine import hardware as this_machine
from gnnexp.provenance.versions import code_version, library_versions
from gnnexp.record.records import write_json

_WORKER = "gnnexp.planning.calibration"
_VERSIONS = ("torch", "numpy", "numba")
_BUSY = 0.5  # running processes, average over the minute before the first rank was started


def main(options: argparse.Namespace) -> Answer:
    """Measure this machine, print the figures, and write the profile."""
    experiment = checked_experiment(options.overrides, options.config_dir, options.config_name)
    path = profile_path(options.out, experiment.hardware, Path(options.config_dir or "conf"))
    console = make_console()
    extent, load = QUICK if options.quick else Extent(), os.getloadavg()[0]
    measured = {**measure(experiment, extent, quick=options.quick), "load_average": load}
    figures = figures_of(measured["ranks"])
    command = shlex.join(["gnnexp", "calibrate", *options.overrides, *(["--quick"] if options.quick else [])])
    source = _describe(measured, quick=options.quick)
    console.print(_table_of(figures))
    notes = link_lines(from_facts(measured["pairs"]))
    write_profile(path, profile_text(experiment.hardware, figures, source, command, notes))
    _tell(console, path, load)
    return Answer({**_record_of(experiment.hardware, measured, figures, command), "profile": str(path)})


def checked_experiment(overrides: Sequence[str], config_dir: str | None, config_name: str = PRIMARY) -> Experiment:
    """The experiment of the tiny runs, on the requested hardware.

    Raises:
        ConfigError: an override is not about `hardware`, or this machine does not start the ranks.
    """
    foreign = [
        Problem(line, line, "only hardware is calibrated", "hardware.workers=2, hardware.threads=1, …")
        for line in overrides
        if not re.match(r"\+{0,2}hardware[.=]", line)
    ]
    ConfigError.raise_all(foreign)
    # Nothing runs in the run directory, so its name does not matter.
    experiment = checked_config([*STEP_OVERRIDES, *overrides, "preflight=off"], config_dir, config_name).experiment
    problems = []
    if not isinstance(experiment.launcher, LocalLauncher):
        problems.append(
            Problem(
                "hardware.launcher",
                target_of(experiment.launcher),
                "calibrated ranks are started on this machine",
                "hardware=local, in a job on one of its nodes",
            )
        )
    if experiment.hardware.throttle:
        problems.append(
            Problem("hardware.throttle", "emulated", "an emulated speed cannot be measured", "hardware=local")
        )
    ConfigError.raise_all(problems)
    return experiment


def profile_path(out: str | None, hardware: HardwareConfig, folder: Path) -> Path:
    """The file for the profile: `--out`, else `hardware/<host>_<ranks>x<threads>.yaml` in the user's folder.

    Raises:
        ConfigError: no profile can be written there.
    """
    host = re.sub(r"\W+", "_", str(this_machine()["host"])).strip("_").lower() or "this_machine"
    threads = f"x{hardware.threads}" if hardware.threads else ""
    path = folder / "hardware" / f"{host}_{hardware.workers}{threads}.yaml" if out is None else Path(out)
    problems = new_file_problems("--out", path)
    if path.suffix != ".yaml":
        problems.append(Problem("--out", str(path), "must be a YAML file", f"--out {path.with_suffix('.yaml')}"))
    ConfigError.raise_all(problems)
    return path


def measure(experiment: Experiment, extent: Extent, *, quick: bool) -> dict[str, Any]:
    """Start the ranks, wait for them, and return what they measured.

    Raises:
        RunError: a rank failed; no profile is written.
    """
    with tempfile.TemporaryDirectory(prefix="gnnexp-calibrate-") as place:
        folder = Path(place)
        graph = Rmat(num_nodes=extent.nodes, num_edges=extent.edges, num_features=1, num_classes=2, locality=0.0)
        write_json(
            folder / REQUEST,
            {
                "config": experiment.config.mapping,
                "extent": asdict(extent),
                "quick": quick,
                "sampled": str(prepare_graph(graph, cache_root())[1]),
                "tiny": str(prepare_graph(experiment.dataset, cache_root())[1]),
            },
        )
        with closing(LocalLauncher(_WORKER)) as launcher:
            outcome = launcher.launch(folder, experiment.hardware)
        if outcome.exit_code:
            raise RunError(f"calibration {outcome.status}: {outcome.message or outcome.reason}")
        figures: dict[str, Any] = json.loads((folder / FIGURES).read_text(encoding="utf-8"))
        return figures


def _describe(measured: Mapping[str, Any], *, quick: bool) -> str:
    """The text of the profile's `source`: machine, date, ranks and versions."""
    machine, versions = this_machine(), library_versions()
    ranks = len(measured["ranks"])
    words = [
        f"gnnexp calibrate on {machine['host']}: {machine['cpu']}, {machine['cores']} cores",
        *(f"GPU {name}" for name in machine["gpus"][:1]),
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        f"{ranks} ranks of {measured['threads']} threads at once, exchanges by {measured['backend']}",
        f"load average {measured['load_average']:.1f} before",
        f"gnnexp {code_version()}",
        *(f"{name} {versions[name]}" for name in _VERSIONS if name in versions),
    ]
    return ", ".join(words) + ("; QUICK: sizes that fit into the caches, not for estimates" if quick else "")


def _record_of(
    hardware: HardwareConfig, measured: Mapping[str, Any], figures: Sequence[Measurement], command: str
) -> dict[str, Any]:
    """All repetitions, with the machine and the versions of libraries."""
    return {
        "machine": {
            **this_machine(),
            "versions": library_versions(),
            "gnnexp": code_version(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
        "command": command,
        "figures": [asdict(figure) for figure in figures],
        "hardware": {"workers": hardware.workers, "threads": hardware.threads, "device": hardware.device},
        **measured,
    }


def _table_of(figures: Sequence[Measurement]) -> Table:
    """A table with median and quartiles of every figure."""
    return made_table(
        ("figure", "median", "quartiles", "spread", "what"),
        (
            (
                figure.name,
                f"{figure.median:.4g}",
                f"{figure.low:.3g} to {figure.high:.3g}",
                f"{100 * figure.spread:.0f} %",
                UNITS[figure.name],
            )
            for figure in figures
        ),
        "this machine, per rank, all ranks at once",
    )


def _tell(console: Console, path: Path, load: float) -> None:
    """Print the profile and how to use it, with a warning if other programs used the machine."""
    if load > _BUSY:
        console.print(
            marked(
                "warning",
                "yellow",
                f" the load average was {load:.1f} before: other programs ran at the "
                "same time and lower these figures; repeat the command when they have ended",
            ),
            soft_wrap=True,
        )
    console.print(f"profile: {path}", soft_wrap=True)
    console.print(path.read_text(encoding="utf-8"), soft_wrap=True)
    if path.parent.name == "hardware":
        own = path.parent.parent.resolve() == product_folder("conf").resolve()
        words = "" if own else f"--config-dir {shlex.quote(str(path.parent.parent))}"
        console.print(
            f"use it: gnnexp plan NAME --hardware {path.stem} {words}\n"
            f"        gnnexp run hardware={path.stem} {words} …",
            soft_wrap=True,
        )
