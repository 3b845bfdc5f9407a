"""SIGKILL at random in a sweep, also with `--jobs 2`: the sweep, its cases, starters, ranks, deliveries."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from gnnexp.cli.running.execute import lost_model
from gnnexp.record.runs import read_run
from torture import checks
from torture.processes.family import Role
from torture.setups import Setup
from torture.storm import DELIVERY_S, RANKS_S, STORE, Command, Storm

NAME = "storm"
SEEDS = (0, 1, 2)
_SYSTEMS = ("dgl", "gsplit", "sancus")
_ATTEMPTS = 12


def write_sweep(storm: Storm, system: str, workers: int = 2, more: Sequence[str] = ()) -> list[Setup]:
    """`storm.yaml` with one case for every seed, and `more` overrides of all; what the cases are."""
    cases = [Setup(system, workers=workers, seed=seed) for seed in SEEDS]
    (storm.folder / f"{NAME}.yaml").write_text(
        json.dumps(
            {
                "description": "a storm",
                "fixed": [*cases[0].fixed, *more],
                "axes": {"seed": [case.seed for case in cases]},
            }
        )
    )
    return cases


def run(storm: Storm) -> None:
    """One sweep, killed and repeated until it has finished; then every case compared, and counted in the store."""
    system, jobs = storm.random.choice(_SYSTEMS), storm.random.choice([1, 1, 2])
    # Side by side, each rank has a core of its own: two cases of one rank fit on two cores.
    cases = write_sweep(storm, system, workers=2 if jobs == 1 else 1)
    for case in cases:
        storm.undisturbed(case)
    storm.put_store()
    left = storm.random.choice([2, 3, 4, 6])
    for _ in range(_ATTEMPTS):
        command = storm.start("sweep", f"{NAME}.yaml", "--jobs", str(jobs), spare=12)
        while left > 0 and command.poll() is None:
            left -= _strike(storm, command, jobs)
        code = storm.done(command, 300)
        if storm.random.random() < 0.5:
            storm.expect_quiet(RANKS_S, ("starter", "rank"))
        if code == 0:
            break
        storm.numbers["sweeps_repeated"] += 1
    else:
        storm.problems.append(f"not finished after {_ATTEMPTS} attempts: {storm.commands[-1].said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    compare_sweep(storm, cases)
    storm.expect_quiet(RANKS_S)
    storm.numbers["kills_compared"] += storm.numbers["kills"]


def _strike(storm: Storm, command: Command, jobs: int) -> bool:
    """Kill one, at a random moment; False if there was nobody."""
    who: tuple[Role, ...] = ("command", "command", "starter", "rank", "rank", "follower")
    chosen = storm.random.choice([*who, "case", "case"] if jobs > 1 else who)
    if storm.random.random() < 0.3:
        delay = storm.random.uniform(0, 8) * (1 if storm.warm else 4)
    else:
        storm.until(lambda: bool(storm.members(chosen, command)), command, 60)
        delay = storm.random.uniform(0, 1.5)
    end = time.monotonic() + delay
    storm.until(lambda: time.monotonic() > end, command, 60)
    return command.poll() is None and storm.send(signal.SIGKILL, chosen, command)


def compare_sweep(storm: Storm, cases: list[Setup], *, full_disk: bool = False) -> None:
    """Every case has one finished run, equal to its undisturbed one; the store has each once, and one report.

    Args:
        storm: in which the sweep was run.
        cases: of the sweep.
        full_disk: whether the disk was full: then a case may have finished without its last checkpoint.
    """
    runs: dict[int, list[Path]] = {case.seed: [] for case in cases}
    for run_dir in sorted((storm.folder / "runs" / NAME).iterdir()):
        if (run_dir / "job.json").exists():
            runs[json.loads((run_dir / "job.json").read_text())["config"]["seed"]].append(run_dir)
        else:
            storm.numbers["empty_run_directories"] += 1
    for case in cases:
        found = runs[case.seed]
        if len(found) != 1:
            storm.problems.append(f"case seed={case.seed} has {len(found)} runs: {[path.name for path in found]}")
    storm.check_store([run_dir for found in runs.values() for run_dir in found])
    for case in cases:
        for run_dir in runs[case.seed]:
            if full_disk and lost_model(read_run(run_dir)):
                storm.finished_without_a_checkpoint(run_dir, case)
            else:
                storm.compare(run_dir, case)
    storm.problems += checks.report_problems(storm.folder / STORE, NAME)
    storm.problems += checks.leftover_problems(storm.folder / "runs" / "sweeps")
    states = json.loads((storm.folder / "runs" / "sweeps" / f"{NAME}.json").read_text())
    wrong = [state["status"] for state in states["cases"] if state["status"] not in ("finished", "finished before")]
    if wrong:
        storm.problems.append(f"the sweep's state says {wrong}")
