"""Another user of the machine while a run of two ranks trains: nothing is read, written or ended, and losses stay."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command_line import curve
from other_user import NOBODY, acting_as, needs_root, shared_folder
from rank_processes import ranks_of

pytestmark = [needs_root, pytest.mark.slow, pytest.mark.interpreter, pytest.mark.timeout(300)]
_RUN = ["dataset=digits", "hardware.workers=2", "tracker=none", "train.epochs=60"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with shared_folder(0o755) as place:
        yield place


def started(folder: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gnnexp", "run", *_RUN, f"hydra.run.dir={name}"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"GNNEXP_CACHE": str(folder / "cache")},
        umask=0o022,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ports_of(ranks: list[psutil.Process]) -> list[int]:
    return [one.laddr.port for rank in ranks for one in rank.net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def refused(look: Callable[[], object]) -> bool:
    try:
        look()
    except PermissionError:
        return True
    return False


def answer_of(port: int) -> bytes:
    """What a port of the run answers to somebody who sends something."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as door:
        door.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 16)
        with suppress(TimeoutError, ConnectionError):
            door.settimeout(1)
            return door.recv(1 << 16)
    return b""


def test_a_second_user_gets_nothing_and_changes_nothing(folder: Path) -> None:
    alone = started(folder, "alone")
    output, _ = alone.communicate(timeout=120)
    assert alone.returncode == 0, output
    going, run = started(folder, "run"), folder / "run"
    try:
        end = time.monotonic() + 60
        while not (run / "epochs.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.05)
        ranks = list(ranks_of(run).values())
        ports = ports_of(ranks)
        assert len(ranks) == 2 and ports and (run / "private" / "store").exists()
        with acting_as(NOBODY):
            assert (run / "epochs.jsonl").read_text() and (run / "logs").is_dir(), "the umask lets others read"
            closed = {
                "private folder": lambda: list((run / "private").iterdir()),
                "secret": (run / "private" / "secret").read_text,
                "store": (run / "private" / "store").read_bytes,
                "new file": lambda: (run / "new").write_text("x"),
                "checkpoints": (run / "checkpoints").rmdir,
                "record": lambda: (run / "epochs.jsonl").open("a"),
                "lock": lambda: (run / "lock").open("r+"),
                "run directory": lambda: run.rename(folder / "mine"),
                "cache": (folder / "cache" / "x").mkdir,
                **{
                    f"{what} of rank {place}": lambda rank=rank, what=what: Path(
                        f"/proc/{rank.pid}/{what}"
                    ).read_bytes()
                    for place, rank in enumerate(ranks)
                    for what in ("environ", "maps")
                },
                **{
                    f"files of rank {place}": lambda rank=rank: list(Path(f"/proc/{rank.pid}/fd").iterdir())
                    for place, rank in enumerate(ranks)
                },
                **{
                    f"signal to rank {place}": lambda rank=rank: os.kill(rank.pid, signal.SIGTERM)
                    for place, rank in enumerate(ranks)
                },
            }
            assert [name for name, look in closed.items() if not refused(look)] == []
            assert [answer_of(port) for port in ports] == [b""] * len(ports)
            shared = [file for file in Path("/dev/shm").iterdir() if file.stat().st_uid == 0]
            assert [file for file in shared if os.access(file, os.R_OK, effective_ids=True)] == []
        output, _ = going.communicate(timeout=120)
    finally:
        going.kill()
    assert going.returncode == 0, output
    assert curve(str(run)) == curve(str(folder / "alone"))
    assert not (run / "private").exists()
