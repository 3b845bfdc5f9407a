"""Malformed files by the hundred: ways to damage and to forge, and the workplace that sees what they did."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError, DataError
from gnnexp.testing.graphs import nasty_graph

MAX_GROWTH = 300 << 20
BLOCK = 1 << 24
GRAPH = nasty_graph()


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with room above it for what escapes; what was executed, escaped or swallowed memory fails."""
    work = tmp_path / "above" / "place" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("GNNEXP_CACHE", str(work.parent / "cache"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = psutil.Process().memory_info().rss
    yield work
    assert peak_bytes() - before < MAX_GROWTH
    assert not list(tmp_path.rglob("executed*")) and not list(tmp_path.rglob("escaped*"))
    assert [item.name for item in (*tmp_path.iterdir(), *(tmp_path / "above").iterdir())] == ["above", "place"]
    assert {item.name for item in work.parent.iterdir()} <= {"work", "cache"}
    assert not (work / "never").exists()


class Executes:
    """Its pickle makes a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


EXECUTES = pickle.dumps(Executes(), protocol=2)


def many(count: int, quick: int) -> list[Any]:
    """Seeds, of which all but the first `quick` are for `make test-slow`."""
    return [pytest.param(seed, marks=() if seed < quick else pytest.mark.slow) for seed in range(count)]


def refused(call: Callable[[], object], word: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        call()
    assert word in str(caught.value)
    assert all(problem.fix and len(str(problem.value)) < 1000 for problem in caught.value.problems)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npy_of(header: str, data: bytes = b"", version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    """A `.npy` file that says whatever we like."""
    text = header.encode().ljust(117) + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + version + size + text + data


def claims(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return npy_of(f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}", data)


OBJECT = npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (), }")


def deflated_zeros(blocks: int, start: bytes = b"", wbits: int = -15) -> bytes:
    """`start` and 16 MiB of zeros per block, in some KiB and without the time that packing them would take."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    content = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return content + block * blocks + packer.flush()


def forged_zip(name: str, data: bytes, method: int, claimed: int, flags: int = 0) -> bytes:
    """An archive of one member whose size is what somebody claims."""
    word = name.encode()
    sizes = struct.pack("<HHHHIII", flags, method, 0, 0, 0, len(data), claimed)
    local = b"PK\x03\x04" + struct.pack("<H", 20) + sizes + struct.pack("<HH", len(word), 0) + word + data
    central = b"PK\x01\x02" + struct.pack("<HH", 20, 20) + sizes + struct.pack("<HHHHHII", len(word), 0, 0, 0, 0, 0, 0)
    central += word
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def damaged(content: bytes, generator: random.Random) -> bytes:
    """What a disk, a network or somebody with bad intentions makes of a file."""
    changed = bytearray(content)
    kind = generator.choice(["truncated", "flipped", "flipped", "flips", "emptied", "garbled", "longer", "pickle"])
    if kind == "truncated":
        return content[: generator.randrange(len(content))]
    if kind in ("flipped", "flips"):
        for _ in range(1 if kind == "flipped" else 20):
            # Headers are short, so half of the flips are made there.
            limit = len(content) if generator.random() < 0.5 else min(len(content), 200)
            changed[generator.randrange(limit)] ^= 1 << generator.randrange(8)
        return bytes(changed)
    return {
        "emptied": b"",
        "garbled": generator.randbytes(len(content)),
        "longer": content + generator.randbytes(9),
        "pickle": EXECUTES,
    }[kind]


def said_on_refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(arguments) in (1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said and "fix: " in said
    return said
