"""What ranks share: the process that they are forked from has imported it."""

from __future__ import annotations

import subprocess
import sys

FORKED = """
import sys, threading
from gnnexp.worker import preload
preload()
before, threads = set(sys.modules), threading.active_count()
import gnnexp.train, gnnexp.record.failure, gnnexp.record.heartbeat
from gnnexp.training.assemble import assemble
import torch
torch.optim.Adam([torch.zeros(1)])
print(threads, sorted(set(sys.modules) - before))
"""


def test_a_fork_has_nothing_left_to_import() -> None:
    said = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "1 []"
