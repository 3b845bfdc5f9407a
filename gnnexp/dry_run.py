"""A short dry run in a process of its own: how much memory computing takes, beside the data (SDT-GNN, section III-C).

`python -m gnnexp.dry_run FOLDER` reads `dry_run.json` there (a configuration for one rank, the graph's folder, how many
ranks the machine has) and writes `profile.json`. The same few batches are trained twice: once to touch the pages of the
mapped data and make the optimizer's state, then measured.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from gnnexp.comm.environment import Environment
from gnnexp.experiment.needs import Profile
from gnnexp.job import Job
from gnnexp.launchers.parent import die_with_parent, import_from_here
from gnnexp.measure.memory import own_bytes, own_peak_bytes, reset_host_peak
from gnnexp.paradigms.base import Paradigm
from gnnexp.preparation.artifacts import DRY_RUN, PROFILE
from gnnexp.record.records import write_json
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import make_optimizer

BATCHES = 3


def main() -> int:
    """Measure; what goes wrong is on standard error."""
    die_with_parent()
    import_from_here()
    folder = Path(sys.argv[1])
    request = json.loads((folder / DRY_RUN).read_text(encoding="utf-8"))
    before = own_bytes()
    environment = Environment(local_ranks=request["local_ranks"])
    job, paradigm = assemble(request["config"], Artifacts(Path(request["graph"])), folder, environment)
    write_json(folder / PROFILE, vars(measure(job, paradigm, before)))
    return 0


def measure(job: Job, paradigm: Paradigm[Any], before: int) -> Profile:
    """Train; `before` are the bytes that the process had of its own."""
    optimizer = make_optimizer(paradigm.module, job.run.train)
    paradigm.module.train()
    trained = 0
    for _ in range(2):
        reset_host_peak()
        if job.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(job.device)
        trained = 0
        for batch in islice(paradigm.batches(0), BATCHES):
            paradigm.forward_backward(batch)
            paradigm.update(optimizer)
            trained += 1
    cuda = job.device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(job.device) if cuda else own_peak_bytes() - before
    assert job.run.train.batch_size is not None
    return Profile(peak, job.run.train.batch_size, trained, job.device.type)


if __name__ == "__main__":
    sys.exit(main())
