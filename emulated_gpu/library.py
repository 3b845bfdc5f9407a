"""Compiles and loads the emulated device and its NCCL: C++ in the folder `cpp`, compiled once per torch and source."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

_SOURCES = Path(__file__).parent / "cpp"
_DEVICE = ("device.cpp", "graph.cpp", "guard.cpp", "ipc.cpp", "kernels.cpp", "memory.cpp")
_NCCL = ("backend.cpp", "order.cpp")
_LIBRARIES = ("-lc10", "-ltorch_cpu")
_FLAGS = ("-std=c++20", "-O1", "-fPIC")
CACHE_VARIABLE = "GNNEXP_EMULATED_CACHE"


def load() -> ctypes.CDLL:
    """Load the emulated device into this process. It is compiled first if necessary (once, for minutes).

    Raises:
        RuntimeError: torch is already imported, is missing or is a CUDA build, or the compiler failed.
    """
    if "torch" in sys.modules:
        raise RuntimeError("the emulated device must be loaded before torch: torch looks for CUDA once, at its import")
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise RuntimeError("torch is not installed")
    torch = Path(found.origin).parent
    if not (torch / "lib" / "libtorch_cpu.so").exists() or (torch / "lib" / "libtorch_cuda.so").exists():
        raise RuntimeError("the emulated device needs a CPU build of torch for Linux")
    for name in ("libgomp.so.1", "libc10.so", "libtorch_cpu.so"):
        if (torch / "lib" / name).exists():
            ctypes.CDLL(str(torch / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(_built(torch, _DEVICE, _LIBRARIES)), mode=ctypes.RTLD_GLOBAL)  # NCCL's library calls it
    for name in ("emulated_count", "emulated_allocated_bytes", "emulated_peer_reads"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def load_nccl() -> ModuleType:
    """The Python module of the emulated NCCL, compiled if necessary. The device and torch must be loaded before."""
    import torch

    built = _built(Path(torch.__file__).parent, _NCCL, (*_LIBRARIES, "-ltorch_python"))
    spec = importlib.util.spec_from_file_location("emulated_nccl", built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _built(torch: Path, sources: Sequence[str], libraries: Sequence[str]) -> Path:
    """A shared library that an earlier process compiled, or that is compiled now."""
    key = hashlib.sha256(importlib.metadata.version("torch").encode() + sys.version.encode())
    for file in (*sorted(_SOURCES.glob("*.h")), *(_SOURCES / source for source in sources)):
        key.update(file.read_bytes())
    cache = Path(os.environ.get(CACHE_VARIABLE, ".gnnexp/emulated"))
    built = cache / f"{key.hexdigest()[:16]}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            compiled = Path(folder) / "emulated.so"
            _compile(torch, sources, libraries, compiled)
            compiled.replace(built)  # another process may have compiled the same; both are equal
    return built.resolve()


def _compile(torch: Path, sources: Sequence[str], libraries: Sequence[str], target: Path) -> None:
    include = torch / "include"
    folders = (include, include / "torch" / "csrc" / "api" / "include", sysconfig.get_path("include"))
    headers = [f"-I{folder}" for folder in folders]

    def compiled(source: str) -> str:
        made = target.parent / f"{Path(source).stem}.o"
        _run("g++", *_FLAGS, *headers, "-c", str(_SOURCES / source), "-o", str(made))
        return str(made)

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compiled, sources))
    _run("g++", "-shared", *objects, "-o", str(target), f"-L{torch / 'lib'}", *libraries)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
