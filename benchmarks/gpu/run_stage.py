"""One stage in a process of its own: `python -m benchmarks.gpu.run_stage smoke --out DIR --seconds 120`."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys
import time
from pathlib import Path

from emulated_gpu import install, is_wanted

_RESERVE_S = 10.0  # to write down what there is


def main() -> int:
    """The exit code: 0 complete and good, 1 something is wrong, 2 there is no GPU, 3 time was too short."""
    options = _options()
    faulthandler.dump_traceback_later(options.seconds, exit=True)  # it hangs: say where
    if is_wanted():  # before torch is imported
        install()
    import torch

    from benchmarks.gpu.ceilings import ceiling_of
    from benchmarks.gpu.facts import facts
    from benchmarks.gpu.report import Report
    from benchmarks.gpu.stage import Stage

    if not torch.cuda.is_available():
        print("no CUDA device is visible; `make gpu-proof-rehearsal` uses an emulated one", file=sys.stderr)
        return 2
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    found = {**facts(device), "quick": options.quick}
    report = Report(options.out / f"{options.stage}.json", found, again=options.again)
    stage = Stage(
        report,
        device,
        found["emulated"],
        options.quick,
        time.monotonic() + options.seconds - _RESERVE_S,
        ceiling_of(found["device"], found["driver"]),
    )
    whole = importlib.import_module(module_of(options.stage)).run(stage)
    report.write(complete=whole)
    if not all(row.ok for row in report.rows):
        return 1
    return 0 if whole else 3


def module_of(stage: str) -> str:
    """The module of a stage. Stages that only measure speed are in a folder of their own."""
    name = stage.replace("-", "_")
    folder = "benchmarks.gpu.speed" if (Path(__file__).parent / "speed" / f"{name}.py").exists() else "benchmarks.gpu"
    return f"{folder}.{name}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="after which it is ended")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
