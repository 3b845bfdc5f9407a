"""Does gnnexp work on this machine's GPU, and how fast is the GPU: `make gpu-proof` (docs/howto/gpu_proof.md).

Every stage is a process with a time limit and leaves DIR/<stage>.json. Called again, it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.needed import ROOT, digest
from benchmarks.gpu.report import is_done, read, table

# Seconds that each may take of a call's minutes.
LIMITS = {
    "smoke": 240,
    "kernels-exact": 420,
    "tests": 420,
    "calibrate": 180,
    "kernel-bench": 180,
    "sampler": 180,
    "epoch": 300,
    "offload": 300,
    "trace": 120,
    "graphs": 120,
}
# Stages by what they show. Those of one slice fit into one call of nine minutes.
SLICES = {
    "correct": ("smoke", "kernels-exact", "tests", "calibrate"),
    "speed": ("kernel-bench", "sampler", "epoch"),
    "memory": ("offload", "trace", "graphs"),
}
_LEAST_S = 40  # a stage is not started for less
_GRACE_S = 15  # in which a stage ends by itself after its limit


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every stage is complete and good."""
    options = _options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    ends, source = time.monotonic() + 60 * options.minutes, digest()
    for name in options.stages:
        path = options.out / f"{name}.json"
        if not options.again and is_done(read(path), source, quick=options.quick):
            print(f"{name}: done before, by the same files", flush=True)
            continue
        seconds = min(LIMITS[name], ends - time.monotonic() - _GRACE_S)
        if seconds < _LEAST_S:
            print(f"{name}: no time is left; call again with the same --out", flush=True)
            continue
        print(f"{name}: at most {seconds:.0f} s", flush=True)
        _run(name, options, seconds)
    found = {name: read(options.out / f"{name}.json") for name in options.stages}
    print(table(found))
    return 0 if all(is_done(one, source, quick=options.quick) for one in found.values()) else 1


def _run(name: str, options: argparse.Namespace, seconds: float) -> None:
    """One stage and whatever it started, which end with it."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.run_stage",
        name,
        "--out",
        str(options.out.resolve()),
        "--seconds",
        str(seconds),
        *(["--quick"] if options.quick else []),
        *(["--again"] if options.again else []),
    ]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)
    try:
        code = process.wait(seconds + _GRACE_S / 2)
        print(f"{name}: ended with exit code {code}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{name}: killed after {seconds + _GRACE_S / 2:.0f} s", flush=True)
    finally:
        with suppress(ProcessLookupError):  # its ranks have ended too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9, help="of all stages together")
    parser.add_argument(
        "--stages",
        type=_stages,
        default=list(SLICES["correct"]),
        help=f"{','.join(LIMITS)}; {', '.join(SLICES)}: several of them; all",
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"))
    parser.add_argument("--again", action="store_true", help="also what is complete")
    parser.add_argument("--quick", action="store_true", help="small sizes and few cases: a rehearsal")
    return parser.parse_args(argv)


def _stages(text: str) -> list[str]:
    names = [name for word in text.split(",") for name in (LIMITS if word == "all" else SLICES.get(word, (word,)))]
    if unknown := [name for name in names if name not in LIMITS]:
        known = ", ".join((*LIMITS, *SLICES, "all"))
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {known}")
    return names


if __name__ == "__main__":
    sys.exit(main())
