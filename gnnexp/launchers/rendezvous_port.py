"""Chooses the port at which ranks meet; `python -m gnnexp.launchers.rendezvous_port` prints that of a SLURM job.

The process that starts ranks chooses the port on the first node, some seconds before rank 0 listens there. The system
could give an ephemeral port to another process in the meantime: each srun and each rank asks for several. So ports
below the ephemeral ones are tried, and each job begins at a different port.
"""

from __future__ import annotations

import os
import socket

_LOWEST, _PORTS = 10_000, 20_000  # Linux gives ephemeral ports from 32768 on
# The distance to the next port that is tried: far from where the next jobs begin.
_STRIDE = 1_009


def rendezvous_port(number: int, host: str = "") -> int:
    """The first free port.

    Args:
        number: number of the job or process that starts the ranks; other numbers begin with other ports.
        host: an address of this machine; empty means all addresses.

    Raises:
        OSError: no port is free.
    """
    tried = 0
    while not _is_free(host, port := _LOWEST + (number + tried * _STRIDE) % _PORTS):
        tried += 1
        if tried == _PORTS:
            raise OSError(f"no port from {_LOWEST} to {_LOWEST + _PORTS - 1} is free on {socket.gethostname()}")
    return port


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as rank 0: a port in TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
            probe.listen()  # two sockets bound in this way may share a port until one listens
        except OSError:
            return False
    return True


if __name__ == "__main__":
    print(rendezvous_port(int(os.environ["SLURM_JOB_ID"])))
