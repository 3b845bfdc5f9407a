"""Records of finished sweeps in one file: a `.parquet` with the contents of run directories, no logs or checkpoints.

It has `runs/sweeps/<name>.json` and the `result.json` of every run that has ended, under the names that they had below
the working folder (`gnnexp.record.columnar`). `gnnexp.record.importing` makes runs of them elsewhere.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError, Findings, Problem
from gnnexp.record.columnar import STATES, Records, write_records
from gnnexp.record.records import RESULT_FILE, load_result, read_state, unreadable


def pack_records(names: Sequence[str], file: Path, folder: Path = Path(), *, words: Sequence[str] | None = None) -> int:
    """Write the records of sweeps to one file, atomically, and return the number of runs.

    Equal records give equal bytes.

    Args:
        names: names of the sweeps.
        file: the new file.
        folder: folder above `runs/`.
        words: what the user typed for each sweep, such as the file of a sweep; by default its name.

    Raises:
        DataError: a sweep was not run here, none of its runs has ended, or a record is damaged.
    """
    findings = Findings()
    states: dict[str, Mapping[str, Any]] = {}
    results: dict[str, Mapping[str, Any]] = {}
    for name, word in zip(names, words or names, strict=True):
        if ended := findings.attempt(_ended, folder, name, word):
            states[name], runs = ended
            results |= runs
    findings.raise_all()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_records(Records(dict(sorted(states.items())), dict(sorted(results.items()))), file)
    return len(results)


def _ended(folder: Path, name: str, word: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The state of a sweep, and the results of its runs that have ended, by their directories."""
    file = folder / STATES / f"{name}.json"
    state = read_state(file) if os.path.lexists(file) else {"cases": []}
    cases = dict.fromkeys(case["run_dir"] for case in state["cases"] if case["run_dir"])
    runs = [run for run in cases if os.path.lexists(folder / run / RESULT_FILE)]
    if not runs:
        raise DataError(
            Problem("export", word, "no run of such a sweep has ended here", f"gnnexp sweep {shlex.quote(word)}")
        )
    results, problems = {}, []
    for run in runs:
        try:
            results[run] = as_made(load_result(folder / run))
        except (OSError, ValueError) as error:
            problems.append(unreadable(folder / run / RESULT_FILE, error))
    DataError.raise_all(problems)
    return state, results


def as_made(result: Mapping[str, Any]) -> dict[str, Any]:
    """A record in the form in which it is given to others.

    It has no entries of an earlier import, no tracker address, and no name of a checkpoint: archives have none.
    """
    provenance = dict(result["provenance"])
    mark = provenance.pop(IMPORTED, None)
    if isinstance(mark, Mapping) and isinstance(mark.get("uid"), str):
        provenance["uid"] = mark["uid"]
    config = {group: node for group, node in result["config"].items() if group != "tracker"}
    best = result.get("best")
    kept = {"best": {**best, "checkpoint": None}} if isinstance(best, Mapping) and "checkpoint" in best else {}
    return {**result, "config": config, "provenance": provenance, **kept}


IMPORTED = "imported"


def imported_from(provenance: Mapping[str, Any]) -> str:
    """The name of the file that a run was imported from; empty for a run that was made here."""
    mark = provenance.get(IMPORTED)
    if mark is None:
        return ""
    return str(mark.get("file") or "an archive") if isinstance(mark, Mapping) else "an archive"
