"""A run in a directory, read as reports read it."""

from __future__ import annotations

import json
from pathlib import Path

from run_folder import write_epochs, write_job, write_result

from gnnexp.record.runs import RecordedRun, read_run


def run_on_disk(
    folder: Path, system: str = "dgl", seed: int = 0, epochs: int = 4, status: str = "finished"
) -> RecordedRun:
    """A run whose test accuracy is 0.69 and 0.01 per epoch; the same seed of a system has the same key."""
    write_job(folder, uid=str(folder), run_key=f"{system}-{seed}", date=f"2026-01-01T00:00:0{seed}")
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {"system": system, "seed": seed}
    (folder / "job.json").write_text(json.dumps(job))
    write_epochs(folder, epochs)
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)
