"""One run from a checked configuration to its result: prepare, launch, deliver. The run directory is the truth."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from gnnexp.cli.console import EpochPrinter, describe_graph, describe_presample
from gnnexp.cli.prepare import Prepared, check_run_dir, prepare
from gnnexp.cli.provenance import make_provenance
from gnnexp.config.build import build
from gnnexp.config.compose import Composed
from gnnexp.errors import ConfigError, Problem
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.records import RESULT_FILE, read_epochs, summarize, write_json
from gnnexp.reports.figure import draw_breakdown
from gnnexp.reports.runs import read_run
from gnnexp.reports.table import group_runs, row_keys
from gnnexp.sweep import run_key
from gnnexp.trackers.base import Tracker
from gnnexp.trackers.follow import Follower, follow


def execute(composed: Composed, console: Console, sweep: str | None = None) -> Outcome:
    """Run a checked configuration to its end, whatever end that is.

    Raises:
        ConfigError, DataError: before the run directory exists.
    """
    started = time.perf_counter()
    prepared = prepare(composed.config)
    seconds = time.perf_counter() - started
    console.print(f"{describe_graph(prepared.graph)}  [dim]ready in {seconds:.1f} s[/dim]", soft_wrap=True)
    for note in prepared.graph.notes:
        console.print(f"  note: {note}", soft_wrap=True, markup=False)
    for told in prepared.presampled:
        console.print(f"  {describe_presample(told)}", soft_wrap=True)
    run_dir = create_run(composed, prepared, sweep)
    del prepared  # the ranks map the same files; this process has no more use for them
    console.print(f"run directory {run_dir}", soft_wrap=True, markup=False)
    tracker = build(composed.config["tracker"], Tracker)
    follower = follow(run_dir) if tracker.where() else None
    printer = EpochPrinter(console, run_dir)
    printer.start()
    try:
        outcome = build(composed.config["hardware"]["launcher"], Launcher).launch(run_dir, composed.config)
    except KeyboardInterrupt:
        outcome = Outcome(130, "interrupted", "interrupted before the ranks were started", "interrupted")
    printer.close()
    outcome = settle(run_dir, outcome)
    if outcome.status == "finished":
        draw(run_dir)
    deliver_rest(follower, tracker, console)
    if outcome.message:
        print(f"gnnexp: {outcome.message}\nlogs: {run_dir / 'logs'}", file=sys.stderr)
    return outcome


def create_run(composed: Composed, prepared: Prepared, sweep: str | None) -> Path:
    """Make the run directory with `config.yaml` and `job.json`, all that the ranks need.

    Raises:
        ConfigError: if the directory is there already or cannot be made.
    """
    run_dir, config = composed.run_dir, composed.config
    try:
        run_dir.mkdir(parents=True)
    except (OSError, ValueError) as error:
        raise ConfigError(check_run_dir(run_dir) or Problem(
            "hydra.run.dir", str(run_dir), f"cannot be made: {error}", "hydra.run.dir=<a folder that you may write to>"
        )) from None
    partition, presample = (None if folder is None else str(folder)
                            for folder in (prepared.partition, prepared.presample))
    provenance = make_provenance(composed, prepared.key, partition, run_key(config, prepared.key), sweep)
    _write_text(run_dir / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    write_json(run_dir / "job.json", {
        "schema": 1, "config": config, "graph": str(prepared.folder), "partition": partition, "presample": presample,
        "presampled": list(prepared.presampled),
        "provenance": provenance,
    })
    return run_dir


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def settle(run_dir: Path, outcome: Outcome) -> Outcome:
    """Have a `result.json` that agrees with how the launch ended: rank 0 writes one only if all went well."""
    path = run_dir / RESULT_FILE
    if outcome.status == "finished":
        if path.exists():
            return outcome
        outcome = Outcome(1, "failed", "the ranks finished without a result", "the ranks finished without a result")
    result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else _partial_result(run_dir)
    write_json(path, {**result, "status": "failed", "reason": outcome.reason})
    return outcome


def _partial_result(run_dir: Path) -> dict[str, Any]:
    job: Mapping[str, Any] = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))
    epochs = read_epochs(run_dir)
    return {"schema": 1, "config": job["config"], "provenance": job["provenance"], "partition": job["partition"],
            "epochs": epochs, "summary": summarize(epochs, _primary(epochs))}


def _primary(epochs: list[dict[str, Any]]) -> str:
    """The task's metric, from what was recorded."""
    names = (name for line in epochs for name in line["metrics"])
    return next((name.partition("/")[0] for name in names if name.endswith("/val") and name != "loss/val"), "acc")


def draw(run_dir: Path) -> None:
    """The run's own breakdown figure."""
    run = read_run(run_dir)
    draw_breakdown(group_runs([run], row_keys([run])), [run_dir / "figures" / "breakdown.png"])


def deliver_rest(follower: Follower | None, tracker: Tracker, console: Console) -> None:
    """Wait, not for ever, until the tracker has everything; say so once if it has not."""
    if follower is None:
        return
    reason = follower.finish(tracker.timeout_s)
    if reason:
        console.print(f"[yellow]tracking is away[/yellow] ({reason}); the records are in {follower.run_dir}, deliver "
                      "them later with: gnnexp report --sync", soft_wrap=True)
