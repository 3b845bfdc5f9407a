"""The machines that runs are made on: what is recorded of a node, and which nodes count as equal.

Seconds of one kind of machine say nothing about another kind. The kind is everything known about a node except its
name, so equal nodes of a cluster are of one kind.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from gnnexp.files.pulse import kill

UNKNOWN = "unknown machine"
# Environment variable of a case's processes: how many cases of a sweep share the machine (`gnnexp sweep --jobs`).
CASES_VARIABLE = "GNNEXP_CASES_SIDE_BY_SIDE"
# Time limit of commands that describe machine and code: on a dead disk or driver they would never end.
_ANSWER_S = 10.0


@dataclass(frozen=True, order=True)
class Node:
    """A machine on which ranks ran.

    Attributes:
        host: name of the machine.
        cpu: model of the processor.
        cores: number of physical cores, at most as many as the process or its job may use.
        gpus: models of its graphics cards, one for each card.
        torch: version of torch.
        num_cases: number of cases that ran on it at a time, each on its own cores; `cores` counts those of one case.
    """

    host: str
    cpu: str
    cores: int
    gpus: tuple[str, ...]
    torch: str
    num_cases: int = 1

    @property
    def kind(self) -> str:
        """Everything except the name, in words: `2 cores of AMD EPYC, torch 2.13.0`."""
        cards = "".join(f", {f'{count} x ' if count > 1 else ''}{name}" for name, count in Counter(self.gpus).items())
        shared = f", {self.num_cases} cases side by side" if self.num_cases > 1 else ""
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return f"{cores} of {self.cpu or '?'}{cards}, torch {self.torch}{shared}"

    def to_json(self) -> dict[str, Any]:
        """The node as JSON, for a record."""
        found = {**asdict(self), "gpus": list(self.gpus)}
        return found if self.num_cases > 1 else {key: value for key, value in found.items() if key != "num_cases"}


@cache
def this_node() -> Node:
    """The machine of this process."""
    return Node(platform.node(), _cpu_model(), _cores(), tuple(sorted(gpus())), _torch(), _num_cases())


def read_node(entries: Mapping[str, Any]) -> Node:
    """The node that a record describes.

    Raises:
        KeyError, TypeError: the value is no node.
    """
    return Node(
        str(entries["host"]),
        str(entries["cpu"]),
        int(entries["cores"]),
        tuple(map(str, entries["gpus"])),
        str(entries["torch"]),
        int(entries.get("num_cases", 1)),
    )


def kind_of_nodes(nodes: Iterable[Node]) -> str:
    """The kind of several nodes: a single kind if they are equal, else all kinds."""
    return " + ".join(sorted({node.kind for node in nodes})) or UNKNOWN


def machine_of(nodes: Sequence[Mapping[str, Any]], config: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The kind of machine of a recorded run.

    Args:
        nodes: nodes in the record. Old records have none; a local run of theirs ran on the machine that started it.
        config: resolved configuration.
        provenance: provenance of the run.
    """
    if nodes:
        return kind_of_nodes(read_node(node) for node in nodes)
    started = node_of_launch(provenance)
    local = str(config.get("hardware", {}).get("launcher", {}).get("_target_", "")).endswith(".LocalLauncher")
    return kind_of_nodes([started]) if started is not None and local else UNKNOWN


def node_of_launch(provenance: Mapping[str, Any]) -> Node | None:
    """The machine that a run was started from; None if the record does not contain it."""
    hardware = provenance.get("hardware", {})
    if not hardware.get("cpu") and not hardware.get("cores"):
        return None
    return Node(
        str(hardware.get("host", "")),
        str(hardware.get("cpu", "")),
        int(hardware.get("cores") or 0),
        tuple(sorted(str(name) for name in hardware.get("gpus", ()))),
        str(provenance.get("libraries", {}).get("torch", "?")),
        int(hardware.get("side_by_side", {}).get("num_cases", 1)),
    )


def hardware() -> Mapping[str, Any]:
    """Processor, cores, memory and graphics cards of this machine; also the share of a case that shares it."""
    node = this_node()
    own = {
        "num_cases": node.num_cases,
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    return {
        "host": node.host,
        "cpu": node.cpu,
        "cores": node.cores,
        "threads": psutil.cpu_count() or 0,
        "ram_bytes": psutil.virtual_memory().total,
        "gpus": gpus(),
        "system": platform.platform(),
        **({"side_by_side": own} if node.num_cases > 1 else {}),
    }


def gpus() -> list[str]:
    """Names of the graphics cards, from the driver: a query through CUDA would take memory on each card."""
    if shutil.which("nvidia-smi") is None:
        return []
    return output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()


def output_of(command: Sequence[str], without: Sequence[str] = ()) -> str:
    """The output of a command; empty if the command is missing, fails, or takes too long.

    Bytes that are not UTF-8 (text in another encoding) are replaced.

    Args:
        command: the command and its arguments.
        without: environment variables that the command does not get.
    """
    environment = {name: value for name, value in os.environ.items() if name not in without}
    try:
        process = subprocess.Popen(
            command,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError:
        return ""
    assert process.stdout is not None
    try:
        said = process.communicate(timeout=_ANSWER_S)[0]
    except subprocess.TimeoutExpired:
        return ""
    finally:
        if process.returncode is None:
            kill(process)
        process.stdout.close()
    return said.strip() if process.returncode == 0 else ""


def cores_by_threads() -> list[list[int]]:
    """The cores that this process may use, each as the numbers of its hardware threads."""
    cores: dict[str, list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        file = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        cores.setdefault(file.read_text(encoding="ascii") if file.exists() else str(number), []).append(number)
    return list(cores.values())


def _num_cases() -> int:
    return int(os.environ.get(CASES_VARIABLE, "1"))


def _cores() -> int:
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 0
    allowed = (_of_process(), _of_container(Path("/sys/fs/cgroup/cpu.max")))
    return min([physical, *(count for count in allowed if count)])


def _of_process() -> int:
    """CPUs of the job on this node, of which a rank may see only its own; without a job, those of this process.

    A case that shares the machine has whole cores, with any number of hardware threads each.
    """
    if _num_cases() > 1:
        return len(cores_by_threads())
    job = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(job) if job.isdigit() else len(os.sched_getaffinity(0))


def _of_container(file: Path) -> int:
    """Whole CPUs that the control group of a container may use; 0 without a limit."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # `max`, or another version of control groups
        return 0


def _torch() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "?"


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
