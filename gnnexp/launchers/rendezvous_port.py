"""At which port ranks meet; `python -m gnnexp.launchers.rendezvous_port` prints that of a SLURM job.

Whoever starts ranks asks on the first node, some seconds before rank 0 listens there. A port that the system gives away
could be given to somebody else meanwhile (each srun and each rank asks for several): ports below those are tried, from
one that nobody else begins with.
"""

from __future__ import annotations

import os
import socket

_LOWEST, _PORTS = 10_000, 20_000  # Linux gives away those from 32768 on
# Far from where the next jobs begin.
_STRIDE = 1_009


def rendezvous_port(number: int, host: str = "") -> int:
    """The first that is free.

    Args:
        number: of the job or process that starts the ranks: others begin with other ports.
        host: an address of this machine; empty: all of them.

    Raises:
        OSError: none of them is free.
    """
    tried = 0
    while not _is_free(host, port := _LOWEST + (number + tried * _STRIDE) % _PORTS):
        tried += 1
        if tried == _PORTS:
            raise OSError(f"no port from {_LOWEST} to {_LOWEST + _PORTS - 1} is free on {socket.gethostname()}")
    return port


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as rank 0 will: what lingers is no obstacle
        try:
            probe.bind((host, port))
            probe.listen()  # two that are bound so may share a port as long as neither listens
        except OSError:
            return False
    return True


if __name__ == "__main__":
    print(rendezvous_port(int(os.environ["SLURM_JOB_ID"])))
