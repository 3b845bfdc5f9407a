"""What a proof ran on: commit, versions, driver, device and its clocks."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from benchmarks.gpu.needed import FOLDERS, ROOT, digest
from emulated_gpu import is_wanted
from gnnexp.provenance.machine import hardware, output_of

_ASKED = (
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks.max.mem",
    "power.limit",
    "temperature.gpu",
    "pcie.link.gen.max",
    "pcie.link.width.max",
)
_PACKAGES = ("torch", "numba", "scipy", "psutil", "numpy")


def facts(device: torch.device) -> dict[str, Any]:
    """Of this checkout and this machine; `commit` and `dirty` are null where there is no git repository."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "emulated": is_wanted(),
        "commit": _git("rev-parse", "HEAD") or None,
        "dirty": _dirty(),
        "source": digest(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "versions": {name: _version(name) for name in _PACKAGES},
        "device": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": [properties.major, properties.minor],
        "driver": driver(device),
        "machine": hardware(),
    }


def driver(device: torch.device) -> dict[str, float | str]:
    """What nvidia-smi says of the device now, by its own names; nothing without nvidia-smi, or if it is emulated."""
    if is_wanted():
        return {}
    said = output_of(
        ["nvidia-smi", f"--id={device.index or 0}", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits"]
    )
    values = [value.strip() for value in said.strip().split(",")]
    return dict(zip(_ASKED, map(_number, values), strict=True)) if len(values) == len(_ASKED) else {}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:  # a version, or `[N/A]`
        return text


def _dirty() -> bool | None:
    if not _git("rev-parse", "HEAD"):
        return None
    return bool(_git("status", "--porcelain", "--", *FOLDERS))


def _git(*words: str) -> str:
    return output_of(["git", "-C", str(ROOT), *words]).strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
