"""Follows an external command on this rank: starts it, watches it, records what it reports, and ends it.

The command stands in place of the training loop. The ranks of gnnexp meet only at the start, so that their process
group takes nothing from the command's. Rank 0 records; the other ranks report the memory of their processes in files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch

from gnnexp.comm.communicator import Communicator, connect
from gnnexp.comm.environment import STOP_VARIABLE, Environment
from gnnexp.errors import CommandError, DataError, DivergedError, HangError, Problem
from gnnexp.experiment.build import global_batch_size
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import subfolder
from gnnexp.files.regular import open_regular
from gnnexp.graph.storage.format import open_graph
from gnnexp.launchers import keeper
from gnnexp.launchers.interrupts import handling
from gnnexp.launchers.parent import LAUNCHER_VARIABLE
from gnnexp.launchers.rendezvous_port import rendezvous_port
from gnnexp.measure.available import kernel_kills, limit_in_words
from gnnexp.measure.phases import FORWARD_BACKWARD, PhaseTimer
from gnnexp.paradigms.external.command import Command
from gnnexp.paradigms.external.files import digest_of_all, digests_of
from gnnexp.paradigms.external.lines import LINE_BYTES, Lines, ReportedEpoch, too_long
from gnnexp.paradigms.external.variables import Handed, variables_of
from gnnexp.provenance.code import RunCode
from gnnexp.record.ending import primary_of
from gnnexp.record.heartbeat import Heartbeat
from gnnexp.record.records import EpochLog, read_epochs, write_json, write_text
from gnnexp.training.result import note_ranks, write_record

SCRATCH = "external"
# Key of the command's files in the inputs of a run.
INPUT = "paradigm.command"
# Seconds between two looks at the lines, between two measurements of memory, and between the first of them.
_POLL_S, _MEMORY_S, _FIRST_MEMORY_S = 0.01, 0.5, 0.05
# Seconds for lines in one look: a command may write them faster than they are recorded, and signals wait for a look.
_LINES_S = 0.2
# If two looks are this far apart, this process was frozen.
_ABSENT_S = 3.0
# Seconds in which killed processes must have ended.
_END_S = 10.0
_LAST_BYTES = 1 << 14
_FATAL = "Fatal Python error: "  # begins the stack that Python's fault handler writes
_HOST_PEAK = (
    "resident memory of the command's processes since it began, twice a second; pages that processes share "
    "count in each of them"
)


def follow(
    run_dir: Path,
    request: Mapping[str, Any],
    experiment: Experiment,
    command: Command,
    environment: Environment,
    code: RunCode,
    started: list[PhaseTimer],
    heartbeat: Heartbeat,
) -> str:
    """Run the external command of an experiment on this rank; the other arguments are those of a training rank.

    Returns:
        Empty if the command has finished, else who asked the run to stop.

    Raises:
        DataError: a line is wrong, or files of the command were edited after the launch.
        CommandError: the command failed. HangError: it hangs. MemoryError: the kernel ended it for lack of memory.
        DivergedError: it reported a loss that is not finite.
    """
    started.append(timer := PhaseTimer())
    heartbeat.watch(timer)
    files = digests_of(command.own_files())
    _refuse_edited(files, request)
    handed = _handed(subfolder(run_dir, SCRATCH), request, experiment, command, environment)
    handed = replace(handed, port=_meet(run_dir, experiment, environment, code, timer))
    alone = command.processes == "run"
    if alone and environment.rank:
        return ""  # rank 0 has the one command
    log = EpochLog(run_dir, environment.rank)
    watch = _Watch(command, experiment.hardware.timeout_s, log, handed, environment)
    inherited = {name: value for name, value in os.environ.items() if name != LAUNCHER_VARIABLE}
    variables, kills = variables_of(inherited, handed, environment, alone=alone), kernel_kills()
    with _asked_to_stop() as asked, timer.activity.during("train"), _started(command.words, variables) as process:
        exit_code = _wait(process, watch, asked)
    if asked and (exit_code or environment.rank or log.num_epochs < experiment.train.epochs):
        return asked[0]
    if exit_code:
        raise _failure(command.words, exit_code, run_dir, environment.rank, kernel_kills() > kills)
    if environment.rank == 0:
        watch.finish()
        _write_result(run_dir, request, experiment.train.epochs, command, environment, handed, files)
    return ""


def _refuse_edited(files: Mapping[str, str], request: Mapping[str, Any]) -> None:
    """Refuse to run files that were edited after the launch: the record would name other files."""
    planned = (request.get("provenance", {}).get("inputs") or {}).get(INPUT)
    if planned is not None and planned != digest_of_all(files):
        raise DataError(
            Problem(
                INPUT,
                ", ".join(files),
                "was edited after the run was launched, or is another file on this machine",
                "start a new run",
            )
        )


def _meet(run_dir: Path, experiment: Experiment, environment: Environment, code: RunCode, timer: PhaseTimer) -> int:
    """Note where all ranks run, and return the port that rank 0 chose for the ranks of the command."""
    host = torch.device("cpu")
    with timer.activity.exchange():
        meeting = connect(environment, host, experiment.hardware.timeout_s, run_dir)
    comm = Communicator(environment, timer, host, timeout_s=experiment.hardware.timeout_s, meeting=meeting)
    note_ranks(run_dir, comm, code)
    # The port after that of this meeting: it is chosen while rank 0 still listens there.
    port = comm.gather_objects(
        rendezvous_port(int(os.environ.get("MASTER_PORT", os.getpid())) + 1) if environment.rank == 0 else 0
    )[0]
    comm.close()
    assert isinstance(port, int)
    return port


def _handed(
    folder: Path, request: Mapping[str, Any], experiment: Experiment, command: Command, environment: Environment
) -> Handed:
    """What the command gets, without the port; called before the ranks meet, so that all see the same files.

    Rank 0 writes the configuration for the command. In it, `train.batch_size` is that of a global batch.
    """
    config, hardware = request["config"], experiment.hardware
    epochs = folder / f"epochs_{len(list(folder.glob('epochs_*.jsonl'))) + 1}.jsonl"
    if environment.rank == 0:
        train = {**config["train"], "batch_size": global_batch_size(config), "batch_of": "run"}
        write_json(folder / "config.json", {**config, "train": train})
        for file in folder.glob("peak_*"):
            file.unlink(missing_ok=True)  # of an earlier attempt
        epochs.touch()
    gpus = 0 if hardware.device == "cpu" or not torch.cuda.is_available() else torch.cuda.device_count()
    cores = len(os.sched_getaffinity(0))
    return Handed(
        scratch=folder,
        graph=Path(request["graph"]).resolve(),
        partition=None if request.get("partition") is None else Path(request["partition"]).resolve(),
        config=folder / "config.json",
        epochs=epochs,
        seed=experiment.seed,
        device=f"cuda:{environment.local_rank % gpus}" if gpus else "cpu",
        threads=hardware.threads or max(1, cores // environment.local_ranks),
        resumed=command.resumes and bool(read_epochs(folder.parent)),
        num_ranks=environment.num_ranks,
        port=0,
    )


@contextmanager
def _asked_to_stop() -> Iterator[list[str]]:
    """The stop signals that arrive inside, by name. SIGUSR2 asks for a checkpoint, which no command can be asked for.

    Under SLURM, SIGUSR2 announces the end of the allocation.
    """
    asked: list[str] = []
    announced = [signal.SIGUSR2] if os.environ.get(STOP_VARIABLE) else []
    stops = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *announced}

    def note(number: int, frame: object) -> None:
        if number in stops:
            asked.append(signal.Signals(number).name)

    with handling(dict.fromkeys((*stops, signal.SIGUSR2), note)):
        yield asked


@contextmanager
def _started(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The keeper of the command (`gnnexp.launchers.keeper`). At the end, no process of the command is left."""
    sys.stdout.flush()
    process = subprocess.Popen(
        [sys.executable, "-I", keeper.__file__, str(os.getpid()), *command],
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _wait(process: subprocess.Popen[bytes], watch: _Watch, asked: list[str]) -> int:
    """Watch the command until it has ended; returns its exit code. A stop signal is passed on as SIGTERM."""
    passed_on = 0
    while True:
        code = process.poll()  # first: then all of its lines are in the file
        has_more = watch.look(process.pid)
        if code is not None and not has_more:
            return code
        if len(asked) > passed_on:
            passed_on = len(asked)
            process.send_signal(signal.SIGTERM)
        time.sleep(_POLL_S)


class _Watch:
    """Reads the lines of the command, measures its memory, and notices if it hangs.

    Args:
        command: the command.
        timeout_s: seconds of silence after which it hangs, unless it has its own limit.
        log: the log of the run's records.
        handed: what the command got.
        environment: place of this rank.
    """

    def __init__(
        self, command: Command, timeout_s: float, log: EpochLog, handed: Handed, environment: Environment
    ) -> None:
        self.lines = Lines(handed.epochs, log.num_epochs if handed.resumed else 0)
        self._silent_s = command.silent_s or timeout_s
        self._log, self._handed, self._rank = log, handed, environment.rank
        self._resumed = log.num_epochs > 0
        self._began = self._reported = self._heard = self._looked = time.perf_counter()
        self._unread, self._position, self._output = b"", 0, _output_bytes()
        self._waiting: list[bytes] = []
        self._peak, self._written, self._measured = 0, 0, 0.0

    def look(self, pid: int) -> bool:
        """Handle new lines and measure; `pid` is the keeper's. Returns whether there may be more lines.

        Raises:
            DataError, DivergedError: a line is wrong, or says that the loss is not finite.
            HangError: the command gave no sign of life for too long.
        """
        now = time.perf_counter()
        if now - self._looked > _ABSENT_S:  # this process was frozen, and the command with it
            self._heard = now
        self._looked = now
        lines = [] if self._rank else self._waiting or self._new_lines()
        if now - self._measured > (_FIRST_MEMORY_S if lines or now - self._began < 2 else _MEMORY_S):
            self._measured = now
            self._measure(pid)
            if (output := _output_bytes()) != self._output:
                self._output, self._heard = output, now
        if self._rank:
            return False
        if lines:
            self._heard = now
            self._take(lines, now)
        if now - self._heard > self._silent_s:
            raise HangError(
                f"the command gave no sign of life for {now - self._heard:.0f} s: it reported no epoch and "
                "wrote no output; if its epochs take longer, set paradigm.silent_s"
            )
        return bool(lines)

    def finish(self) -> None:
        """Check that the command reported anything.

        Raises:
            DataError: it reported no epoch, or ended in the middle of a line.
        """
        if self._unread:
            raise DataError(
                Problem(
                    f"{self._handed.epochs}, line {self.lines.count + 1}",
                    self._unread[:80].decode(errors="replace"),
                    "must end with a new line",
                    "write the end of each line",
                )
            )
        if not self.lines.count and not self._log.num_epochs:
            raise DataError(
                Problem(
                    INPUT,
                    str(self._handed.epochs),
                    "the command ended and has reported no epoch",
                    "append one JSON object for each epoch to the file $GNNEXP_EPOCHS",
                )
            )

    def _take(self, lines: Sequence[bytes], now: float) -> None:
        """Record the lines. Those that there is no time for wait for the next look."""
        began, done = time.perf_counter(), 0
        with self._log.together():
            while done < len(lines) and (not done or time.perf_counter() - began < _LINES_S):
                if lines[done].strip():
                    self._record(self.lines.read(lines[done], now - self._began), now)
                done += 1
        self._waiting = list(lines[done:])

    def _new_lines(self) -> list[bytes]:
        fix = 'append to it: open(os.environ["GNNEXP_EPOCHS"], "a")'
        try:
            with open_regular(self._handed.epochs) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(self._position)
                new = file.read(16 * LINE_BYTES)
        except FileNotFoundError:
            raise DataError(Problem(str(self._handed.epochs), "was removed", "gnnexp reads it", fix)) from None
        if size < self._position:
            raise DataError(
                Problem(str(self._handed.epochs), f"{size} bytes", f"had {self._position} bytes before", fix)
            )
        self._position += len(new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        for place, line in enumerate([*lines, self._unread]):
            if len(line) > LINE_BYTES:
                raise too_long(self._handed.epochs, self.lines.count + place + 1, line)
        return lines

    def _record(self, report: ReportedEpoch, now: float) -> None:
        """Record one epoch, unless an earlier attempt has recorded it."""
        wall, self._reported = now - self._reported, now
        peak = max([self._peak, *_peaks_of_others(self._handed.scratch)])
        measured = {"time/wall_s": wall, **({"memory/host_peak_bytes": peak} if peak else {})}
        again = [{"step": 0, "ranks": self._handed.num_ranks, "same_ranks": 1}] if self._resumed else []
        if report.epoch >= self._log.num_epochs:
            self._resumed = False
        self._log.append(report.epoch, {**_metrics(report), **measured}, [], [], again)
        loss = report.metrics.get("loss/train", 0.0)
        if not torch.isfinite(torch.tensor(loss)):
            raise DivergedError(f"the command reported the loss {loss} in epoch {report.epoch}")

    def _measure(self, pid: int) -> None:
        """Update the peak of the resident memory of all processes below the keeper."""
        total = 0
        with suppress(psutil.Error, OSError):
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.Error, OSError):  # it has ended
                    total += process.memory_info().rss
        self._peak = max(self._peak, total)
        if self._rank and self._peak > self._written:
            self._written = self._peak
            with suppress(OSError):  # the disk is full: rank 0 then knows an earlier peak
                write_text(self._handed.scratch / f"peak_{self._rank}", str(self._peak))


def _metrics(report: ReportedEpoch) -> dict[str, float]:
    """The reported figures. One number stands for the whole run, so minimum and mean over ranks are equal to it."""
    found = dict(report.metrics)
    if all(f"time/{phase}_s" in found for phase in ("forward", "backward")):
        found["time/fb_s"] = sum(found.get(f"time/{phase}_s", 0.0) for phase in FORWARD_BACKWARD)
    spread = {
        f"{name}_{of}": value for name, value in found.items() if name.startswith("time/") for of in ("min", "mean")
    }
    return found | spread


def _peaks_of_others(folder: Path) -> Iterator[int]:
    for file in folder.glob("peak_*"):
        with suppress(OSError, ValueError):
            yield int(file.read_text())


def _output_bytes() -> int:
    """Bytes of this rank's log, to which the command writes its output."""
    return os.fstat(1).st_size


def _failure(command: Sequence[str], code: int, run_dir: Path, rank: int, killed_for_memory: bool) -> Exception:
    """The error for a command that ended with an exit code other than 0."""
    number = code - 128
    ended = f"exited with code {code}"
    if number in set(signal.Signals):
        ended = f"was ended by {signal.Signals(number).name}"
    if number == signal.SIGKILL and killed_for_memory:
        return MemoryError(f"the command was killed by the kernel: out of memory ({limit_in_words()})")
    last = _last_line(run_dir / "logs" / f"rank_{rank}.log")
    return CommandError(
        f"the command {' '.join(command)} {ended}" + (f"; its last line of output: {last}" if last else "")
    )


def _last_line(file: Path) -> str:
    """The last line that the command printed, without the stack that Python's fault handler writes after it."""
    with suppress(OSError), open_regular(file) as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))
        printed, fatal, stack = log.read().decode(errors="replace").partition(_FATAL)
        lines = printed if printed.strip() else fatal + stack.split("\n")[0]
        return next((line.strip()[:300] for line in reversed(lines.split("\n")) if line.strip()), "")
    return ""


def _write_result(
    run_dir: Path,
    request: Mapping[str, Any],
    epochs_asked: int,
    command: Command,
    environment: Environment,
    handed: Handed,
    files: Mapping[str, str],
) -> None:
    """Write `result.json`. It says what the command claims, what gnnexp measured, and that nothing was checked."""
    epochs = read_epochs(run_dir)
    measured = ["time/wall_s", "memory/host_peak_bytes"]
    claimed = sorted({name for line in epochs for name in line["metrics"]} - set(measured))
    write_record(
        run_dir,
        request,
        primary_of(epochs),
        chosen={
            "host": environment.host,
            "device": handed.device,
            "threads": handed.threads,
            "host_peak": _HOST_PEAK,
            "draws": "by the command",
        },
        paradigm={
            "exact": False,
            "approximates": command.approximates,
            "external": {
                "command": list(command.words),
                "processes": command.processes,
                "files": dict(files),
                "uses": sorted(command.uses),
                "claimed": claimed,
                "measured": measured,
                "epochs_asked": epochs_asked,
                "epochs_reported": len(epochs),
                "began_again_at": [line["epoch"] for line in epochs if line.get("resumed")]
                if not command.resumes
                else [],
            },
        },
        notes=open_graph(handed.graph).notes,
    )
