"""Where the ranks of a SLURM job meet: nobody else is there, nor will the system send anybody."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gnnexp.launchers.rendezvous_port import rendezvous_port


def test_jobs_that_start_together_meet_at_different_ports_below_those_given_away() -> None:
    given_away = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [rendezvous_port(job_id) for job_id in range(70, 90)]
    assert len(set(ports)) == len(ports) and max(ports) < given_away


@pytest.mark.parametrize("listening", [True, False])
def test_a_port_that_is_taken_is_passed_over(listening: bool) -> None:
    port = rendezvous_port(75)
    with socket.socket() as other:
        other.bind(("", port))
        if listening:
            other.listen()
        assert rendezvous_port(75) != port
    assert rendezvous_port(75) == port


@pytest.mark.interpreter
def test_the_job_script_reads_it_from_a_process_that_loads_nothing_heavy() -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gnnexp.launchers.rendezvous_port"],
        env={"SLURM_JOB_ID": "4000000000"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 10_000 <= int(told.stdout) < 30_000 and "torch" not in told.stderr and "numpy" not in told.stderr
