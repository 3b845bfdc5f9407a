"""A second user of the machine (nobody): at the run's files, processes and ports, or in a shared cache. Needs root.

Nothing is read that is secret, nothing written, nobody ended. What a stranger sends to a port changes no result.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from torture.campaigns.kills import recorded
from torture.processes import warm
from torture.setups import random_setup
from torture.storm import DELIVERY_S, RANKS_S, Command, Storm

NOBODY = 65534
# What a stranger does at once, and how long one answer of a port is waited for.
_TRIES, _ANSWER_S = 40, 0.2


def run(storm: Storm) -> None:
    """A guest while ranks train, or a neighbour in the same cache."""
    if os.geteuid() != 0:
        storm.numbers["strangers_not_run"] += 1
        return
    for place in (storm.shared, storm.folder.parent, storm.folder):
        place.chmod(0o755)
    os.umask(0o022)
    (_guest if storm.random.random() < 0.7 else _neighbour)(storm)
    storm.expect_quiet(RANKS_S)


# --- a guest ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sight:
    """What a stranger knows of a run.

    Attributes:
        run_dir: its directory.
        cache: of prepared data.
        store: of the tracker.
        pids: of all of its processes.
        ports: on which its ranks listen.
        since: seconds since the epoch, when it began.
    """

    run_dir: Path
    cache: Path
    store: Path
    pids: Sequence[int]
    ports: Sequence[int]
    since: float


def _guest(storm: Storm) -> None:
    setup, since = random_setup(storm.random), time.time()
    storm.undisturbed(setup)
    storm.put_store()
    run_dir = storm.folder / "run"
    command = storm.start("run", *setup.overrides, "hardware.timeout_s=10", "hydra.run.dir=run")
    met = storm.random.random() < 0.6
    storm.history.append(f"{setup.name}: a guest {'in an epoch' if met else 'from the start on'}")
    storm.until(lambda: recorded(run_dir) > 0 if met else bool(storm.members("rank", command)), command, 120)
    while command.poll() is None:
        ranks = storm.members("rank", command)
        pids = [command.pid, *(member.pid for member in ranks), *(one.pid for one in storm.members("starter", command))]
        ports = [port for member in ranks for port in _ports_of(member.pid)]
        _visit(storm, Sight(run_dir, storm.shared / "cache", storm.folder / "mlflow.db", pids, ports, since))
    if storm.done(command) != 0:
        storm.numbers["strangers_kept_ranks_from_meeting"] += 1
        if met:
            storm.problems.append(f"ranks had met, and the run ends: {command.said()[-600:]}")
        if storm.run("resume", "run").code != 0:
            storm.problems.append(f"does not go on without the stranger: {storm.commands[-1].said()[-600:]}")
            return
    storm.expect_quiet(DELIVERY_S)
    storm.check_store([run_dir])
    storm.compare(run_dir, setup)
    if (run_dir / "private").exists():
        storm.problems.append("the private folder is left")


def _ports_of(pid: int) -> list[int]:
    with suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]
    return []


def _visit(storm: Storm, sight: Sight) -> None:
    """One visit of the stranger, as a process; what it got."""
    reading, writing = os.pipe()
    seed, pid = storm.random.randrange(1 << 31), warm.fork()
    if pid == 0:
        os.close(reading)
        warm.ended_by(lambda: _stranger(sight, Random(seed), writing))
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:  # noqa: PTH123
        said = answer.read()
    os.waitpid(pid, 0)
    found = json.loads(said)
    storm.numbers["strangers_tries"] += found["tries"]
    storm.numbers["strangers_connections"] += found["connections"]
    storm.problems += [f"a stranger could: {what}" for what in found["worked"]]


def _stranger(sight: Sight, random: Random, writing: int) -> int:
    warm.become(NOBODY)
    doors = list(_doors(sight, random))
    chosen = random.sample(doors, min(_TRIES, len(doors)))
    worked = [name for name, door in chosen if _opens(door)]
    connections = sum(_noise(port, random) for port in random.choices(sight.ports, k=6)) if sight.ports else 0
    found = {"tries": len(chosen), "connections": connections, "worked": worked}
    os.write(writing, json.dumps(found).encode())
    return 0


def _opens(door: Callable[[], object]) -> bool:
    """Whether it worked: refused is right, what is not there any more is no fault, and an empty file is not read.

    The system shows the maps of a process that has ended to everybody: they are empty.
    """
    try:
        return door() != b""
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False


def _doors(sight: Sight, random: Random) -> Iterator[tuple[str, Callable[[], object]]]:
    """What nobody but the owner may do, by names."""
    private = sight.run_dir / "private"
    yield "list the private folder", lambda: list(private.iterdir())
    for name in ("secret", "store"):
        yield f"read private/{name}", (private / name).read_bytes
    for folder in (sight.run_dir, sight.run_dir / "status", sight.run_dir / "checkpoints", sight.cache):
        yield f"make a file in {folder.name}", (folder / "stranger").touch
    for file in _some_files(sight, random):
        yield f"append to {file.name}", lambda file=file: file.open("ab").close()  # type: ignore[misc]
        yield f"remove {file.name}", file.unlink
        yield f"replace {file.name}", lambda file=file: file.rename(file.with_name("x"))  # type: ignore[misc]
    for pid in sight.pids:
        yield from _of_process(pid)
    for file in Path("/dev/shm").iterdir():
        with suppress(OSError):
            if file.stat().st_uid == 0 and file.stat().st_ctime > sight.since:
                yield f"read {file}", file.read_bytes


def _some_files(sight: Sight, random: Random) -> list[Path]:
    files = [sight.store]
    for folder in (sight.run_dir, sight.cache):
        with suppress(OSError):
            files += [file for file in folder.rglob("*") if file.is_file()]
    return random.sample(files, min(8, len(files)))


def _of_process(pid: int) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in ("environ", "maps", "mem"):
        yield f"read /proc/PID/{name}", Path(f"/proc/{pid}/{name}").read_bytes
    yield "list open files", lambda: list(Path(f"/proc/{pid}/fd").iterdir())
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGSTOP):
        yield f"send {number.name}", lambda number=number: os.kill(pid, number)  # type: ignore[misc]
    yield "change the priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)
    yield "change the cores", lambda: os.sched_setaffinity(pid, {0})
    yield "change the limits", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, 16))


def _noise(port: int, random: Random) -> bool:
    """Bytes to a port of a rank; whether the connection was made."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as door:
            door.sendall(random.randbytes(random.randrange(5000)))
            with suppress(TimeoutError):
                door.recv(1 << 16)
    except OSError:
        return False
    return True


# --- a neighbour -----------------------------------------------------------------------------------------------------
def _neighbour(storm: Storm) -> None:
    """Both prepare the same graph in one cache; the stranger is killed while they do."""
    setup, cache, theirs = random_setup(storm.random), storm.folder / "cache", storm.folder / "theirs"
    storm.undisturbed(setup)
    for place in (cache, theirs):
        place.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    cache.chmod(0o2777)
    os.umask(0o002)
    storm.history.append(f"{setup.name}: a neighbour")
    other = storm.start("run", *setup.overrides, "tracker=none", "hydra.run.dir=theirs/run", cache=cache, user=NOBODY)
    end = time.monotonic() + storm.random.uniform(0, 4)
    storm.until(lambda: time.monotonic() > end, other, 10)
    if other.poll() is None:
        os.kill(other.pid, signal.SIGKILL)
        storm.numbers["neighbours_killed"] += 1
    other.wait()
    storm.numbers["neighbours"] += 1
    before = {path for path in cache.rglob("*") if path.stat().st_uid == NOBODY}
    storm.numbers["neighbours_left_files"] += bool(before)
    command = storm.start("run", *setup.overrides, "tracker=none", "hydra.run.dir=run", cache=cache)
    _ends_right(storm, command)
    storm.expect_quiet(DELIVERY_S)
    if command.code == 0:
        storm.compare(storm.folder / "run", setup)


def _ends_right(storm: Storm, command: Command) -> None:
    if storm.done(command) != 0:
        storm.problems.append(f"a cache that a stranger has left, exit {command.code}: {command.said()[-600:]}")
