"""Runs SLURM's commands with limits on time and output. Their output is not trusted."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

# SLURM's own commands give up after 9 s (nothing listens) to 20 s (nothing answers), as measured with 22.05.
TIMEOUT_S = 60.0
# The output for 100,000 tasks of an array is 6 MB.
_MOST_BYTES = 1 << 24
_MOST_WORDS = 1 << 16
_CHUNK = 1 << 16
# Prefixes of variables with a user's defaults, which would hide jobs: SQUEUE_PARTITION, SQUEUE_STATES, …
_DEFAULTS = ("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")


@dataclass(frozen=True)
class Reply:
    """The output of a command.

    Attributes:
        text: standard output.
        words: first line of standard error, without control characters.
        failure: why this is no answer: not installed, a non-zero exit, too late, too long. Empty for an answer.
    """

    text: str
    words: str
    failure: str


def run_in_time(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Reply:
    """Run a command to its end; kill it if it takes too long or prints too much."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DEFAULTS)}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept | {"SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"},
            start_new_session=True,  # so that the command's children can be killed with it
        )
    except (OSError, ValueError) as error:
        return Reply("", "", f"{command[0]} cannot be started: {plain_line(str(error))}")
    try:
        out, err, cut = _read(process, time.monotonic() + timeout_s)
        code = None if cut else _exit_code(process, timeout_s)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None, "both are pipes"
            pipe.close()
    words = plain_line(err.decode(errors="replace"))
    failure = f"{command[0]} {cut or f'did not end within {timeout_s:.0f} s'}" if code is None else ""
    if code:
        named = words if words.startswith(f"{command[0]}: ") else f"{command[0]}: {words}"
        failure = named if words else f"{command[0]} exited with code {code}"
    return Reply(out.decode(errors="replace"), words, failure)


def plain_line(text: str) -> str:
    """The first line with text, at most 200 printable characters of it."""
    lines = (
        "".join(letter if letter.isprintable() else " " for letter in line).strip()
        for line in text[:_MOST_WORDS].splitlines()
    )
    return next((line[:200] for line in lines if line), "")


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, str]:
    """Both streams up to their ends, and the reason if reading stopped earlier."""
    assert process.stdout is not None and process.stderr is not None, "both are pipes"
    limits = {process.stdout: _MOST_BYTES, process.stderr: _MOST_WORDS}
    outputs = {pipe: bytearray() for pipe in limits}
    cut = ""
    with selectors.DefaultSelector() as selector:
        for pipe in limits:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map() and not cut:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                outputs[key.data] += chunk
                if len(outputs[key.data]) > limits[key.data]:
                    cut = f"printed more than {limits[key.data]} bytes"
            if not ready and time.monotonic() >= deadline:
                cut = "did not answer in time"
    return bytes(outputs[process.stdout]), bytes(outputs[process.stderr]), cut


def _exit_code(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
