"""Records of finished sweeps in one file: a `.tar.xz` with the contents of run directories, no logs or checkpoints.

It contains `runs/sweeps/<name>.json` and the `result.json` of every run that has ended, under the names that they had
below the working folder. `gnnexp.record.importing` makes runs of them elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.disk import write_bytes
from gnnexp.record.records import RESULT_FILE, load_result, read_state, unreadable

RUNS = PurePosixPath("runs")
STATES = RUNS / "sweeps"


def pack(names: Sequence[str], file: Path, folder: Path = Path(), *, words: Sequence[str] | None = None) -> int:
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
    members: dict[str, bytes] = {}
    findings = Findings()
    for name, word in zip(names, words or names, strict=True):
        members |= findings.attempt(_members, folder, name, word) or {}
    findings.raise_all()
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for member, content in sorted(members.items()):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    write_bytes(file, packed.getvalue())
    return sum(member.endswith(f"/{RESULT_FILE}") for member in members)


def _members(folder: Path, name: str, word: str) -> dict[str, bytes]:
    """The state of a sweep and the results of its runs, by their names in the archive."""
    file = folder / STATES / f"{name}.json"
    state = read_state(file) if os.path.lexists(file) else {"cases": []}
    found = dict.fromkeys(case["run_dir"] for case in state["cases"] if case["run_dir"])
    runs = [run for run in found if os.path.lexists(folder / run / RESULT_FILE)]
    if not runs:
        raise DataError(
            Problem("export", word, "no run of such a sweep has ended here", f"gnnexp sweep {shlex.quote(word)}")
        )
    members = {str(STATES / f"{name}.json"): _text(state)}
    problems = []
    for run in runs:
        try:
            members[str(PurePosixPath(run) / RESULT_FILE)] = _text(as_made(load_result(folder / run)))
        except (OSError, ValueError) as error:
            problems.append(unreadable(folder / run / RESULT_FILE, error))
    DataError.raise_all(problems)
    return members


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


def _text(value: object) -> bytes:
    return json.dumps(value, indent=1).encode("utf-8")


IMPORTED = "imported"


def imported_from(provenance: Mapping[str, Any]) -> str:
    """The name of the file that a run was imported from; empty for a run that was made here."""
    mark = provenance.get(IMPORTED)
    if mark is None:
        return ""
    return str(mark.get("file") or "an archive") if isinstance(mark, Mapping) else "an archive"
