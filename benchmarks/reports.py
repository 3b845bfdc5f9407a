"""What a report of many runs costs: `python benchmarks/reports.py --base COMMIT`.

The runs are copies of one run's record with other seeds, so all of them are one row. Both checkouts take turns;
the figures are CPU seconds of the whole command. Large numbers of runs, which the base would need minutes for, are
measured here only (`--alone`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import keep
from same_results import HERE, git
from start import environment_of, gnnexp, spent
from versions import interval

RUN = ("run", "dataset=digits", "train.epochs=3", "tracker=none")


def copies(record: Path, folder: Path, count: int) -> Path:
    """`count` run directories in `folder` with the record of one run, and a seed of their own."""
    texts = {name: json.loads((record / name).read_text(encoding="utf-8")) for name in ("job.json", "result.json")}
    epochs = (record / "epochs.jsonl").read_text(encoding="utf-8")
    for seed in range(count):
        run = folder / f"{seed:05d}"
        run.mkdir(parents=True)
        for name, content in texts.items():
            content["config"]["seed"] = seed
            (run / name).write_text(json.dumps(content), encoding="utf-8")
        (run / "epochs.jsonl").write_text(epochs, encoding="utf-8")
    return folder


def reported(tree: Path, runs: Path, work: Path) -> float:
    """CPU seconds of a report of all runs in a folder, by the code of a checkout."""
    place = Path(tempfile.mkdtemp(dir=work))
    return spent(gnnexp("report", str(runs), "--csv"), place, environment_of(tree, work)).cpu


def compared(trees: Mapping[str, Path], runs: Path, work: Path, pairs: int) -> dict[str, Any]:
    """CPU seconds of both sides, pair by pair; the side that begins changes."""
    rows = []
    for pair in range(pairs):
        order = [*trees][:: 1 if pair % 2 == 0 else -1]
        seconds = {side: reported(trees[side], runs, work) for side in order}
        rows.append({side: seconds[side] for side in trees})
    ratios = [row["here"] / row["base"] for row in rows]
    return {"ratio": statistics.median(ratios), "interval": interval(ratios), "pairs": rows}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="commit")
    parser.add_argument("--runs", type=int, nargs="*", default=[400])
    parser.add_argument("--alone", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--name", default="reports")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work, base = Path(folder), Path(folder) / "base"
        git("worktree", "add", "--detach", "-q", str(base), options.base)
        try:
            trees = {"base": base, "here": HERE}
            record = work / "record"
            command = [sys.executable, "-m", "gnnexp", *RUN, f"hydra.run.dir={record}"]
            subprocess.run(command, cwd=work, env=environment_of(HERE, work), check=True, stdout=subprocess.DEVNULL)
            runs = {count: copies(record, work / str(count), count) for count in {*options.runs, *options.alone}}
            both = {str(count): compared(trees, runs[count], work, options.pairs) for count in options.runs}
            alone = {str(count): reported(HERE, runs[count], work) for count in options.alone}
        finally:
            git("worktree", "remove", "--force", str(base))
    print(json.dumps({"ratios": {count: one["ratio"] for count, one in both.items()}, "cpu_s": alone}))
    print(keep(options.name, {"base": options.base, "both": both, "alone_cpu_s": alone}))


if __name__ == "__main__":
    main()
