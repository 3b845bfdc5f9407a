"""Coverage-guided inputs: libFuzzer, through `atheris`, changes bytes and keeps what reaches new lines of gnnexp.

It pays where a reader takes bytes apart by itself and is called thousands of times a second. Where numpy, zipfile or
Hydra read the format, inputs that know the format (`torture.fuzz.kinds`) reach more.

`python -m torture.fuzz.guided TARGET -runs=N -seed=S` is the process in which the imports are instrumented.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.counts import Counts, Failure

PREFIX = "guided_"
_RUNS = 50_000
_SECONDS_OF_A_CASE, _MEMORY_MB = 20, 3072
_WORDS = {
    "ForbiddenError: escaped": "escaped",
    "ForbiddenError": "executed",
    "libFuzzer: timeout": "hang",
    "libFuzzer: out-of-memory": "memory",
    "deadly signal": "crash",
}


def targets() -> tuple[str, ...]:
    """Names of the readers, as kinds; none where atheris is not installed."""
    found = importlib.util.find_spec("atheris") is not None
    return tuple(PREFIX + name for name in _SEEDS) if found else ()


def _npy(array: object) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


# What libFuzzer begins with, by target.
_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "pickles": lambda: [pickle.dumps({0: [1, 2], "a": (None, 1.5, b"x")}, protocol) for protocol in range(5)],
    "npy": lambda: [_npy([[1, 2], [3, 4]]), _npy(1.5), _npy([True])],
    "tables": lambda: [b"0,1\n1,2\n", b"# comment\n3;4\n", b"1.5\tnan\n"],
    "results": lambda: [
        json.dumps(
            {"status": "finished", "config": {}, "provenance": {}, "epochs": [{"metrics": {}}], "summary": {}}
        ).encode()
    ],
    "checkpoints": lambda: [
        json.dumps(
            {
                "schema": 1,
                "position": {"epoch": 1, "step": 0},
                "num_ranks": 1,
                "files": {"shared.pt": {"bytes": 1, "sha256": "x"}},
            }
        ).encode()
    ],
}


def run_guided(kind: str, seed: int, seconds: float, folder: Path) -> Counts:
    """Inputs for one target, for some seconds at most.

    Args:
        kind: one of `targets()`.
        seed: of libFuzzer; the same one makes the same inputs.
        seconds: after which it stops.
        folder: for the files it begins with and those it finds.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        for number, content in enumerate(_SEEDS[kind.removeprefix(PREFIX)]()):
            (corpus / str(number)).write_bytes(content)
        command = [
            sys.executable,
            "-m",
            "torture.fuzz.guided",
            kind,
            str(corpus),
            f"-runs={_RUNS}",
            f"-seed={seed % 2**31 or 1}",
            f"-max_total_time={max(1, round(seconds))}",
            f"-artifact_prefix={place}/",
            f"-timeout={_SECONDS_OF_A_CASE}",
            f"-rss_limit_mb={_MEMORY_MB}",
            "-max_len=4096",
        ]
        variables = {**os.environ, "TMPDIR": place, "GNNEXP_CACHE": f"{place}/cache"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=variables)
    return _counted(kind, seed, done)


def _counted(kind: str, seed: int, done: subprocess.CompletedProcess[str]) -> Counts:
    runs = max(map(int, re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)), default=0)
    if done.returncode == 0:
        return Counts({f"fuzz/{kind}/inputs": runs})
    word = next((word for sign, word in _WORDS.items() if sign in done.stderr), "traceback")
    raised = re.search(r"=== Uncaught Python exception: ===\n(.*)", done.stderr)
    what = f"{kind}: {word}: {(raised[1] if raised else done.stderr[-500:])[:500]}"
    how = f"python -m torture fuzz --kind {kind} --seed {seed}"
    return Counts({f"fuzz/{kind}/inputs": runs, f"fuzz/{kind}/{word}": 1}, (Failure("fuzz", what, seed, how),))


# --- in the process that atheris instruments ----------------------------------------------------------------------
def _readers() -> dict[str, Callable[[bytes], object]]:
    from gnnexp.datasets.reading.tables import NumberTable
    from gnnexp.datasets.reading.unpickle import Pickles, as_array, as_csr, as_object
    from gnnexp.errors import DataError
    from gnnexp.graph.storage.npy import file_header, map_array
    from gnnexp.record.runs import read_run
    from gnnexp.training.checkpoint import open_checkpoint

    def pickles(data: bytes) -> None:
        value = Pickles(data, "key").load()
        for convert in (as_array, as_csr, as_object):
            try:
                convert(value, "key")
            except DataError:
                continue

    def file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        path = Path(name).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)

        def call(data: bytes) -> object:
            path.write_bytes(data)
            return read(path)

        return call

    return {
        "pickles": pickles,
        "npy": file("a.npy", lambda path: map_array(path, file_header(path))),
        "tables": file(
            "a.csv", lambda path: (NumberTable(path, "int64", low=0, high=9).read(), NumberTable(path).words())
        ),
        "results": file("run/result.json", lambda path: read_run(path.parent)),
        "checkpoints": file("00000001-0000000000/checkpoint.json", lambda path: open_checkpoint(path.parent)),
    }


def main(arguments: list[str]) -> None:
    """Hand the process to libFuzzer; it ends with the process."""
    os.chdir(tempfile.mkdtemp())
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["gnnexp.datasets", "gnnexp.graph", "gnnexp.record", "gnnexp.training"]):
        readers = _readers()
    from gnnexp.errors import GnnexpError
    from torture.fuzz.guard import ForbiddenError, Guard

    read, guard = readers[arguments[0].removeprefix(PREFIX)], Guard()

    def one(data: bytes) -> None:
        try:
            with guard.watching(Path(), reads_anywhere=False):
                read(data)
        except (GnnexpError, ForbiddenError):  # the guard has noted what it forbade
            pass
        if guard.found:
            raise AssertionError(f"ForbiddenError: {guard.found[0][0]}: {guard.found[0][1]}")

    atheris.Setup(["guided", *arguments[1:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
