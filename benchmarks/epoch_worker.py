"""One system of the epoch benchmark: sets up once, then runs an epoch whenever a line arrives on stdin."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from gnnexp.assemble import Artifacts, assemble
from gnnexp.comm.environment import Environment
from gnnexp.train import make_optimizer, run_epoch


def main() -> None:
    request = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        job, paradigm = assemble(request["config"], Artifacts(Path(request["graph"])), Path(folder), Environment())
        optimizer = make_optimizer(paradigm.module, job.run.train)
        for epoch, _ in enumerate(sys.stdin):
            record = run_epoch(job, paradigm, optimizer, epoch, {})
            answer = {
                "epoch_s": record.times.epoch_s, "phases": record.times.phases, "hidden": record.times.hidden,
                "unaccounted_s": record.times.unaccounted_s, "steps": len(record.losses),
                "loss": sum(loss for loss, _ in record.losses) / sum(count for _, count in record.losses),
                "edges": record.work["edges_computed"],
            }
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
