"""Building and loading the emulated device: C++ beside this file, compiled once per version of torch and source."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCES = ("device.cpp", "guard.cpp", "kernels.cpp", "memory.cpp")
_FLAGS = ("-std=c++20", "-O1", "-fPIC")
CACHE_VARIABLE = "GNNEXP_EMULATED_CACHE"


def load() -> ctypes.CDLL:
    """Load the emulated device into this process, compiled if need be (about a minute, once).

    Raises:
        RuntimeError: torch has been imported already, it is a CUDA build, or the compiler failed.
    """
    if "torch" in sys.modules:
        raise RuntimeError("the emulated device must be loaded before torch, which asks for CUDA once, when imported")
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise RuntimeError("torch is not installed")
    torch = Path(found.origin).parent
    if not (torch / "lib" / "libtorch_cpu.so").exists() or (torch / "lib" / "libtorch_cuda.so").exists():
        raise RuntimeError("the emulated device needs a CPU build of torch for Linux")
    for name in ("libgomp.so.1", "libc10.so", "libtorch_cpu.so"):
        if (torch / "lib" / name).exists():
            ctypes.CDLL(str(torch / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(_built(torch)))
    for name in ("emulated_count", "emulated_allocated_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def _built(torch: Path) -> Path:
    """The shared library: that of an earlier process, or compiled now."""
    key = hashlib.sha256(importlib.metadata.version("torch").encode())
    for file in sorted(_HERE.glob("*.[ch]*")):
        if file.suffix in (".cpp", ".h"):
            key.update(file.read_bytes())
    cache = Path(os.environ.get(CACHE_VARIABLE, ".gnnexp/emulated"))
    built = cache / f"{key.hexdigest()[:16]}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            compiled = Path(folder) / "emulated.so"
            _compile(torch, compiled)
            compiled.replace(built)  # another process may have done the same: either is as good
    return built.resolve()


def _compile(torch: Path, target: Path) -> None:
    include = torch / "include"
    headers = (f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}")

    def compiled(source: str) -> str:
        made = target.parent / f"{source}.o"
        _run("g++", *_FLAGS, *headers, "-c", str(_HERE / source), "-o", str(made))
        return str(made)

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compiled, _SOURCES))
    _run("g++", "-shared", *objects, "-o", str(target), f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
