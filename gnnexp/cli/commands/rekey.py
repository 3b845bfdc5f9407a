"""`gnnexp rekey`: runs of gnnexp 0.1 get the keys of today, so that sweeps take them as finished."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.record.records import JOB_FILE, run_dirs
from gnnexp.record.rekeying import CURRENT, RekeyOutcome, rekey
from gnnexp.record.runs import RUNS


def main(options: argparse.Namespace) -> Answer:
    """Rewrite the keys, and say which runs keep theirs, and why."""
    folders = [Path(name) for name in options.folders] or [RUNS]
    ConfigError.raise_all(
        [
            Problem("rekey", str(folder), "must be a folder that contains runs", "name it: gnnexp rekey FOLDER")
            for folder in folders
            if not any(run_dirs(folder, JOB_FILE))
        ]
    )
    places = dict.fromkeys(run_dir for folder in folders for run_dir in sorted(run_dirs(folder, JOB_FILE)))
    outcomes = [_rekeyed(run_dir, write=not options.dry_run) for run_dir in places]
    counted = Counter(outcome.why for outcome in outcomes)
    console, current, kept = make_console(), counted.pop(CURRENT, 0), [outcome for outcome in outcomes if outcome.why]
    done = "would get new keys" if options.dry_run else "have new keys"
    console.print(f"{counted.pop('', 0)} runs {done}, {current} have the keys of today already", soft_wrap=True)
    for why, number in counted.most_common():
        console.print(f"{number} keep their keys: {why}", soft_wrap=True)
    return Answer(
        {
            "rekeyed": [str(outcome.run_dir) for outcome in outcomes if not outcome.why],
            "current": current,
            "kept": [
                {"run_dir": str(outcome.run_dir), "why": outcome.why} for outcome in kept if outcome.why != CURRENT
            ],
        }
    )


def _rekeyed(run_dir: Path, *, write: bool) -> RekeyOutcome:
    """The outcome for one run; a run that cannot be rewritten does not keep the others from it."""
    try:
        return rekey(run_dir, write=write)
    except (ProblemsError, OSError) as error:
        return RekeyOutcome(run_dir, str(error).splitlines()[0])
