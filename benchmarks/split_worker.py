"""One rank of the split-sampling benchmark: an epoch's batches split over the ranks, then whole on rank 0."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.block import BatchKey
from gnnexp.paradigms.base import trainer_of
from gnnexp.paradigms.split_parallel import SplitTrainer
from gnnexp.training.assemble import Artifacts, assemble


def main() -> None:
    request = json.loads(sys.argv[1])
    artifacts = Artifacts(Path(request["graph"]), Path(request["partition"]))
    job = assemble(experiment_of(request["config"]), artifacts, Path(request["run_dir"]), read_environment())
    trainer = trainer_of(job)
    assert isinstance(trainer, SplitTrainer)
    for epoch, _ in enumerate(sys.stdin):
        order = trainer.schedule.order(epoch)
        answer = {"split_s": 0.0, "alone_s": 0.0, "edges": 0, "edges_alone": 0}
        for step in range(trainer.schedule.num_steps):
            targets, key = trainer.schedule.global_batch(order, step), BatchKey(0, epoch, step)
            job.comm.barrier()
            start = time.perf_counter()
            split = trainer.splitter.sample(job.shard.owned_of(targets), key, targets.numel())
            answer["split_s"] += time.perf_counter() - start
            answer["edges"] += sum(block.num_edges for block in split.batch.blocks)
            job.comm.barrier()
            if job.comm.rank == 0:
                start = time.perf_counter()
                whole = job.sampler.sample(targets, key)
                answer["alone_s"] += time.perf_counter() - start
                answer["edges_alone"] += sum(block.num_edges for block in whole.blocks)
        job.comm.barrier()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
