"""One rank of a system: sets up once, then runs an epoch whenever a line arrives on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.paradigms.base import trainer_of
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.checkpoint import Position
from gnnexp.training.interruption import Interruption
from gnnexp.training.optimization import Optimization
from gnnexp.training.train import run_epoch


def main() -> None:
    request = json.loads(sys.argv[1])
    config = request.pop("config")
    partition, frequency, parts = (
        None if request.get(name) is None else Path(request[name]) for name in ("partition", "frequency", "parts")
    )
    artifacts = Artifacts(Path(request["graph"]), partition, frequency, parts)
    started = psutil.Process().memory_info().rss
    job = assemble(experiment_of(config), artifacts, Path(request["run_dir"]), read_environment())
    trainer = trainer_of(job)
    optimization = Optimization(job, trainer)
    interruption = Interruption(job.comm)
    for epoch, _ in enumerate(sys.stdin):
        job.comm.barrier()
        record = run_epoch(job, trainer, optimization, Position(epoch), {}, interruption).record
        answer = {
            "epoch_s": record.times.epoch_s,
            "phases": record.times.phases,
            "hidden": record.times.hidden,
            "crossings": record.times.crossings,
            "unaccounted_s": record.times.unaccounted_s,
            "steps": len(record.losses),
            "loss": sum(loss for loss, _ in record.losses) / max(1, sum(count for _, count in record.losses)),
            "edges": record.work["edges_computed"],
            "started_bytes": started,
            "peak_bytes": record.memory["host_peak_bytes"],
            "held": trainer.memory(),
            "exchange_s": sum(of.seconds for tag, of in record.traffic.items() if tag != "gradients"),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
