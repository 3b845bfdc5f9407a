"""What ranks share: the process that they are forked from has imported it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnexp.provenance.code import RunCode
from gnnexp.provenance.machine import this_node
from gnnexp.provenance.recorded import as_executed
from gnnexp.record.attempts import codes_of, nodes_of, read_attempts
from gnnexp.training.result import note_ranks

FORKED = """
import sys, threading
from gnnexp.worker import preload
preload()
before, threads = set(sys.modules), threading.active_count()
import gnnexp.training.train, gnnexp.record.failure, gnnexp.record.heartbeat
from gnnexp.training.assemble import assemble
import torch
from gnnexp.components.eager import eager
eager(torch.optim.Adam)([torch.zeros(1)])
print(threads, sorted(set(sys.modules) - before))
"""


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_fork_has_nothing_left_to_import() -> None:
    said = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "1 []"


def test_ranks_that_execute_different_code_make_the_result_of_none(tmp_path: Path) -> None:
    """A node of a cluster may see an edit a minute after another one."""
    here, before = this_node(), RunCode({"mymodel": "a"})
    after = RunCode({"mymodel": "b"})
    for codes in ([before, before], [before, after], [after, after]):
        told = [(here.to_json(), code.to_json()) for code in codes]
        comm = SimpleNamespace(rank=0, gather_objects=lambda _, told=told: told)
        note_ranks(tmp_path, comm, codes[0])
        attempts, planned = read_attempts(tmp_path), {"run_key": "key", "code": codes[0].to_json()}
        assert codes_of(attempts) == [code.to_json() for place, code in enumerate(codes) if code not in codes[:place]]
        assert bool(as_executed(planned, codes_of(attempts))["run_key"]) == (codes[0] == codes[1])
        assert nodes_of(attempts) == [here.to_json()]
