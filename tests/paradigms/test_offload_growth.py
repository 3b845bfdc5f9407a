"""What the emulated device tier counts is what the process grows by, within 15 %: measured in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

# Kernels of torch: numba's take buffers from a pool that keeps them, so the process grows by less than is in use.
PROGRAM = """
import json, sys, tempfile
from contextlib import contextmanager
from pathlib import Path
import torch
from full_graph import full_config
from experiments import assembled

from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.exactness import parts
from gnnexp.training.assemble import Artifacts
from gnnexp.comm.environment import read_environment
from gnnexp.measure.memory import host_peak_bytes, reset_host_peak
from gnnexp.tiers.tier import DeviceTier

torch.set_num_threads(1)
graph = nasty_graph(30_000, 200_000, 64, 16)
paradigm = {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 3, "keep": sys.argv[2]}
config = full_config(sys.argv[1], paradigm, "float32", model={"hidden": 64, "kernel": "torch"})
counted, grown, inside = [], [], DeviceTier.chunk

class Watched(DeviceTier):
    def chunk(self, topology_bytes, existing):
        self.peak_bytes = 0
        reset_host_peak()
        before = host_peak_bytes()
        with inside(self, topology_bytes, existing):
            yield
        counted.append(self.peak_bytes - topology_bytes - self._held_bytes)
        grown.append(host_peak_bytes() - before)

with tempfile.TemporaryDirectory() as folder:
    job, offload = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), read_environment())
    offload.module.train()
    (batch,) = offload.batches(0)
    offload.forward_backward(batch)  # what is allocated once is there now
    DeviceTier.chunk = contextmanager(Watched.chunk)
    with job.tier.measured():
        offload.forward_backward(batch)
print(json.dumps([counted, grown]))
"""


@pytest.mark.parametrize(
    ("model", "keep"),
    [
        pytest.param("gcn", "paper", marks=pytest.mark.slow),
        pytest.param("sage", "outputs", marks=pytest.mark.slow),
        pytest.param("gat", "outputs", marks=pytest.mark.slow),
    ],
)
@pytest.mark.interpreter
def test_the_count_is_the_growth_of_the_process(model, keep):
    # Freed memory goes back at once, so that none of it is there to be used again.
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, model, keep], env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    chunks = list(zip(*json.loads(done.stdout), strict=True))
    # The first chunk of an epoch also takes memory that stays for the others.
    ratios = [counted / grown for counted, grown in chunks if counted > max(chunks)[0] / 2]
    assert max(chunks)[0] > 10 << 20 and len(ratios) >= 3
    assert 0.85 <= statistics.median(ratios) <= 1.15, chunks
