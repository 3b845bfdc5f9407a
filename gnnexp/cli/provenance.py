"""Where a run's result comes from: code, data, machine, libraries, and the one command that makes it again."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

import gnnexp
from gnnexp.config.build import build
from gnnexp.config.compose import Composed
from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.base import Paradigm

LIBRARIES = ("torch", "numpy", "numba", "scipy", "dgl", "hydra-core", "omegaconf", "mlflow", "submitit", "pymetis",
             "scikit-learn", "matplotlib")


def make_provenance(composed: Composed, dataset_key: str, partition: str | None, run_key: str,
                    sweep: str | None) -> dict[str, Any]:
    """Everything but the configuration itself."""
    return {
        "uid": uuid.uuid4().hex,
        "run_key": run_key,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "code_version": code_version(),
        "argv": sys.argv,
        "reproduce": reproduce_command(composed.overrides, composed.config_dir),
        "cwd": str(Path.cwd()),
        "choices": composed.choices,
        "sweep": sweep,
        "seed": composed.config["seed"],
        "dataset_key": dataset_key,
        "partition": partition,
        "partitioned": build(composed.config["paradigm"], Paradigm).wants_partition(composed.config),
        "libraries": library_versions(),
        "hardware": hardware(),
    }


def graph_sizes(graph: Graph) -> dict[str, int]:
    """What reports and estimates need of the data."""
    return {
        "num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_features": graph.num_features,
        "num_classes": graph.num_classes, "num_relations": graph.num_relations,
        "num_train": graph.splits.train.numel(),
        "num_links": graph.links["train"].shape[0] if "train" in graph.links else 0,
    }


def reproduce_command(overrides: Sequence[str], config_dir: str | None) -> str:
    """The one command, to be typed in the same folder with the same code."""
    words = ["gnnexp", "run", *(line for line in overrides if not line.startswith("hydra."))]
    if config_dir:
        words += ["--config-dir", config_dir]
    return with_root(shlex.join(words))


def with_root(command: str) -> str:
    """`command` with the folder of the data that it reads."""
    root = os.environ.get(ROOT_VARIABLE)
    return (f"{ROOT_VARIABLE}={shlex.quote(root)} " if root else "") + command


def code_version() -> str:
    """The package's version and, in a checkout, the commit and whether files differ from it."""
    version = importlib.metadata.version("gnnexp")
    checkout = Path(gnnexp.__file__).resolve().parent.parent
    if not (checkout / ".git").exists():
        return version
    described = _output(["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"])
    return f"{version}+{described}" if described else version


def library_versions() -> dict[str, str]:
    """Versions of the libraries that are installed, Python's included."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def hardware() -> Mapping[str, Any]:
    """Processor, cores, memory and graphics cards of this machine."""
    return {
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=False) or 0,
        "threads": psutil.cpu_count() or 0,
        "ram_bytes": psutil.virtual_memory().total,
        "gpus": gpus(),
        "system": platform.platform(),
    }


def gpus() -> list[str]:
    """Names of the graphics cards; asked of the driver, since asking CUDA would take memory on each."""
    if shutil.which("nvidia-smi") is None:
        return []
    return _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
                platform.processor())


def _output(command: Sequence[str]) -> str:
    """What a command prints, empty when it is missing, fails, or takes long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
