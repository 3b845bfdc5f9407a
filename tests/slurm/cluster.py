"""A real SLURM on this machine for tests: `python tests/slurm/cluster.py start | stop | status`.

There are one controller and two virtual nodes n1, n2 with two cores each, all on 127.0.0.1. State and configuration
lie below `$GNNEXP_SLURM` (default /tmp/gnnexp-slurm). Nothing is written into /etc. Commands find the cluster by
`SLURM_CONF`, which `start` prints. It needs root and the Debian packages slurmctld, slurmd, slurm-client, munge.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(os.environ.get("GNNEXP_SLURM", "/tmp/gnnexp-slurm"))
CONF = ROOT / "slurm.conf"
NODES, CPUS, MEMORY_MB = 2, 2, 6000
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "munged")

_CONF = """\
ClusterName=gnnexp
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={root}/ctld
SlurmdSpoolDir={root}/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0,requeue_delay=1
SlurmdParameters=config_overrides
JobRequeue=1
ReturnToService=2
KillWait=8
MinJobAge=3600
SlurmdTimeout=10
SlurmctldTimeout=30
InactiveLimit=0
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=120 State=UP OverSubscribe=NO
"""


def missing_programs() -> list[str]:
    """What of SLURM is not installed here."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def start() -> None:
    """Start what does not run yet, and wait until both nodes take a job."""
    for folder in (ROOT / "ctld", ROOT / "log", *(ROOT / f"n{n}" for n in range(1, NODES + 1))):
        folder.mkdir(parents=True, exist_ok=True)
    nodes = "\n".join(
        f"NodeName=n{n} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={17820 + n} CPUs={CPUS} "
        f"RealMemory={MEMORY_MB} State=UNKNOWN"
        for n in range(1, NODES + 1)
    )
    CONF.write_text(_CONF.format(host=socket.gethostname(), root=ROOT, nodes=nodes))
    os.environ["SLURM_CONF"] = str(CONF)
    _start_munge()
    start_controller()
    for number in range(1, NODES + 1):
        start_node(number)
    _wait("both nodes", lambda: _ok("timeout", "10", "srun", "-Q", f"-N{NODES}", "true"))


def start_controller() -> None:
    """Start the controller, or start it again with the queue that it saved; returns when it answers."""
    if not _alive(ROOT / "slurmctld.pid"):
        _run("slurmctld", "-f", str(CONF))
    _wait("the controller", lambda: _ok("scontrol", "ping"))


def signal_controller(number: int) -> None:
    """Freeze the controller, let it go on, or kill it: jobs run on without it."""
    _signal(int((ROOT / "slurmctld.pid").read_text()), number)


def start_node(number: int) -> None:
    """Start a node's daemon, after the whole cluster or after `kill_node`."""
    if not _alive(ROOT / f"slurmd.n{number}.pid"):
        _run("slurmd", "-f", str(CONF), "-N", f"n{number}")


def kill_node(number: int) -> None:
    """As when a machine loses its power: the daemon and all that it started are gone at once."""
    daemon = int((ROOT / f"slurmd.n{number}.pid").read_text())
    for pid in (daemon, *_tasks_of(f"n{number}")):
        _signal(pid, signal.SIGKILL)
    (ROOT / f"slurmd.n{number}.pid").unlink(missing_ok=True)


def state_of(number: int) -> str:
    """What SLURM thinks of a node."""
    return _output("sinfo", "-h", "-n", f"n{number}", "-o", "%T").upper()


def _tasks_of(node: str) -> list[int]:
    """Step daemons and processes of jobs on a node."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"SLURMD_NODENAME={node}".encode() in variables or (
            command.startswith(b"slurmstepd") and _node_of(process) == node
        ):
            found.append(int(process.name))
    return found


def _node_of(process: Path) -> str:
    """The node whose spool folder a step daemon works in."""
    try:
        return (process / "cwd").readlink().name
    except OSError:
        return ""


def stop() -> None:
    """End everything that `start` started, jobs included; munge stays if it ran before."""
    os.environ["SLURM_CONF"] = str(CONF)
    if _alive(ROOT / "slurmctld.pid"):
        _ok("scancel", "-u", "root")
        _wait("the queue", lambda: not _output("squeue", "-h"))
    files = [*(ROOT / f"slurmd.n{n}.pid" for n in range(1, NODES + 1)), ROOT / "slurmctld.pid", ROOT / "munged.pid"]
    for file in files:
        if file.stem == "munged" and _ok("pgrep", "-x", "slurmctld"):  # another cluster of this machine needs it
            continue
        if _alive(file):
            pid = int(file.read_text())
            _signal(pid, signal.SIGTERM)
            _wait(f"the end of {file.stem}", lambda pid=pid: not _running(pid))


def _start_munge() -> None:
    if _ok("sh", "-c", "munge -n </dev/null"):
        return
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    _run("runuser", "-u", "munge", "--", "/usr/sbin/munged")
    _wait("munge", lambda: _ok("sh", "-c", "munge -n </dev/null"))
    (ROOT / "munged.pid").write_text(Path("/run/munge/munged.pid").read_text())


def _run(*command: str) -> None:
    """Start a daemon; its output must not hold the caller's pipe open."""
    with (ROOT / "log" / f"{command[0]}.out").open("ab") as log:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _ok(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _output(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def _alive(file: Path) -> bool:
    return file.exists() and bool(file.read_text().strip()) and _running(int(file.read_text()))


def _running(pid: int) -> bool:
    """A zombie that waits for a slow init does not run."""
    try:
        state = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("State"))
    except (OSError, StopIteration):
        return False
    return state.split()[1] not in ("Z", "X")


def _signal(pid: int, number: int) -> None:
    if _running(pid):
        os.kill(pid, number)


def _wait(what: str, holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s; see {ROOT / 'log'}")
        time.sleep(0.1)


def main() -> int:
    """Run one command."""
    if missing := missing_programs():
        packages = "slurmctld slurmd slurm-client munge"
        print(f"not installed: {', '.join(missing)} (apt-get install {packages})", file=sys.stderr)
        return 1
    commands = {"start": start, "stop": stop, "status": lambda: print(_output("sinfo", "-N", "-l"), _output("squeue"))}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    os.environ["SLURM_CONF"] = str(CONF)
    commands[sys.argv[1]]()
    if sys.argv[1] == "start":
        print(f"export SLURM_CONF={CONF}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
