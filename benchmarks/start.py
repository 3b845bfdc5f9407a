"""What it costs to start: each command, as a ratio to `import torch` in the same round (`python benchmarks/start.py`).

Commands take turns with `python -c "import torch"`. CPU seconds are those of the process and of all its descendants
(`wait4`). A ratio is the median over the rounds. A further case of a sweep is the difference between sweeps of 20 and
of 5 cases, divided by 15. The budgets are those of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import keep

HERE = Path(__file__).resolve().parent.parent
RUN = ("run", "dataset=digits", "train.epochs=1")
FEW, MANY = 5, 20
IMPORT = "import torch"


@dataclass(frozen=True)
class Spent:
    """CPU and wall seconds of a command."""

    cpu: float
    wall: float


# Largest ratio to `import torch` of CPU and of wall seconds; None: only measured.
BUDGETS: Mapping[str, tuple[float | None, float | None]] = {
    "run": (3.5, 3.5),
    "run, tracker": (1.0, None),
    "run, 4 ranks": (5.0, None),
    "case of a sweep": (0.5, None),
    "case of a sweep, tracker": (1.0, None),
    "list": (0.5, None),
    "status": (0.5, None),
    "list runs": (0.5, None),
    "info": (1.5, None),
    "--help": (None, None),
}
# Its ratio is that of what it costs more than this one.
MORE_THAN: Mapping[str, str] = {"run, tracker": "run"}
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "run": (*RUN, "tracker=none"),
    "run, tracker": RUN,
    "run, 4 ranks": (*RUN, "tracker=none", "hardware.workers=4"),
    "list": ("list",),
    "status": ("status",),
    "list runs": ("list", "runs"),
    "info": ("info",),
    "--help": ("--help",),
}
# Overrides of the sweeps that are measured.
SWEEPS: Mapping[str, tuple[str, ...]] = {
    "case of a sweep": ("tracker=none",),
    "case of a sweep, tracker": (),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sweep-rounds", type=int, default=3, help="rounds, the first ones, that have sweeps")
    parser.add_argument("--only", nargs="*", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--name", default="start", help="of the file in benchmarks/results")
    parser.add_argument("--tree", type=Path, default=HERE, help="checkout whose gnnexp is measured")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work, environment = Path(folder), environment_of(chosen.tree.resolve(), Path(folder))
        (work / "plain").mkdir()
        single = [name for name in chosen.only if name in COMMANDS]
        one_round(single, work / "plain", work / "warm", environment)  # compiles, prepares data, makes a store
        rounds = []
        for number in range(chosen.rounds):
            names = chosen.only if number < chosen.sweep_rounds else single
            rounds.append(one_round(names, work / "plain", work / f"round{number}", environment))
            print(
                f"round {number + 1}: " + ", ".join(f"{name} {one.cpu:.2f}" for name, one in rounds[-1].items()),
                flush=True,
            )
            result = {name: summary(name, rounds) for name in chosen.only}
            seconds = {name: [vars(one[name]) for one in rounds if name in one] for name in rounds[0]}
            kept = keep(
                chosen.name,
                {"rounds": len(rounds), "load_average": os.getloadavg(), "commands": result, "seconds": seconds},
            )
    for name, found in result.items():
        print(f"{name}: CPU {found['cpu_ratio']:.2f}, wall {found['wall_ratio']:.2f} of torch's; {found['budget']}")
    print(kept)


def environment_of(tree: Path, work: Path) -> dict[str, str]:
    """The environment of all commands: the code of `tree`, and a cache of their own."""
    return {**os.environ, "PYTHONPATH": str(tree), "GNNEXP_CACHE": str(work / "cache")}


def one_round(names: Sequence[str], plain: Path, swept: Path, environment: Mapping[str, str]) -> dict[str, Spent]:
    """Each command once, after `import torch`; single commands in `plain`, sweeps in new folders below `swept`."""
    found = {IMPORT: spent([sys.executable, "-c", IMPORT], plain, environment)}
    for name in names:
        if name in COMMANDS:
            found[name] = spent(gnnexp(*COMMANDS[name]), plain, environment)
            continue
        both = [swept_cases(SWEEPS[name], cases, swept / f"{name} {cases}", environment) for cases in (FEW, MANY)]
        found[name] = Spent(
            *((getattr(both[1], kind) - getattr(both[0], kind)) / (MANY - FEW) for kind in ("cpu", "wall"))
        )
    return found


def swept_cases(overrides: Sequence[str], cases: int, folder: Path, environment: Mapping[str, str]) -> Spent:
    """A sweep of `cases` seeds in a new folder."""
    folder.mkdir(parents=True)
    lines = "".join(f"  - {line}\n" for line in (*RUN[1:], *overrides))
    (folder / "start.yaml").write_text(
        f"description: a start\nfixed:\n{lines}axes:\n  seed: {list(range(cases))}\n", encoding="utf-8"
    )
    return spent(gnnexp("sweep", "start.yaml"), folder, environment)


def gnnexp(*words: str) -> list[str]:
    """A command of gnnexp."""
    return [sys.executable, "-m", "gnnexp", *words]


def spent(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Spent:
    """Run a command to its end.

    Raises:
        SystemExit: it failed.
    """
    with (folder / "output.log").open("wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=dict(environment), stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {(folder / 'output.log').read_text()}")
    return Spent(used.ru_utime + used.ru_stime, wall)


def summary(name: str, rounds: Sequence[Mapping[str, Spent]]) -> dict[str, Any]:
    """Median ratios of a command, and whether they keep its budget."""
    rounds = [one for one in rounds if name in one]
    nothing, base = Spent(0.0, 0.0), MORE_THAN.get(name, "")
    cpu, wall = (
        statistics.median(
            (getattr(one[name], kind) - getattr(one.get(base, nothing), kind)) / getattr(one[IMPORT], kind)
            for one in rounds
        )
        for kind in ("cpu", "wall")
    )
    most = BUDGETS[name]
    kept = all(limit is None or value <= limit for value, limit in zip((cpu, wall), most, strict=True))
    budget = "no budget" if most == (None, None) else "within its budget" if kept else "over its budget"
    return {
        "cpu_ratio": cpu,
        "wall_ratio": wall,
        "cpu_s": statistics.median(one[name].cpu for one in rounds),
        "rounds": len(rounds),
        "most": list(most),
        "budget": budget,
    }


if __name__ == "__main__":
    main()
