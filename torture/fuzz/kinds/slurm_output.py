"""What SLURM's commands and `srun`'s log say, garbled, truncated, late, of other jobs, or not what was asked for."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers import slurm
from gnnexp.launchers.queue import slurm_jobs
from gnnexp.launchers.queue.commands import Reply
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.evidence import job_state_of
from torture.fuzz.case import Case
from torture.fuzz.mutate.raw import damaged, other_tokens
from torture.fuzz.mutate.trees import json_text

_SQUEUE = (
    b"RUNNING|None\n",
    b"PENDING|(Resources)\n",
    b"NODE_FAIL|NodeDown\n",
    b"12|RUNNING|N/A|None\n",
    b"12|COMPLETED|2026-11-24T12:00:00|None\n13|PENDING|N/A|(Resources)\n",
    b"12_[3-5%2]|PENDING|N/A|(Priority)\n",
)
_SACCT = (
    b"COMPLETED|None\n",
    b"CANCELLED by 0|None\n",
    b"TIMEOUT+|None\n",
    b"12|OUT_OF_MEMORY|2026-11-24T12:00:00|OutOfMemory\n",
    b"12|CANCELLED by 0|Unknown|None\n12.batch|FAILED|2026-11-24T12:00:00|None\n",
)
_SINFO = (
    b"cpu*|1-00:00:00|2|64|512000|(null)\ngpu|infinite|8|128+|1024000+|gpu:h100:8(S:0-1)\n"
    b"cpu*|30:00|1|32|256000|gpu:2\n"
)
_RUN = Path("run")
_LOG = b"""srun: error: node01: tasks 0,2-3: Terminated
srun: error: node02: task 1: Exited with exit code 137
srun: error: node02: tasks 4-5,7: Exited with exit code 1
slurmstepd: error: *** STEP 12.0 ON node01 CANCELLED AT 2026-11-24T12:00:00 ***
"""
_TOKENS = (
    b"|",
    b"-",
    b"0-99999999",
    b"5-1",
    b"1-2-3",
    b"",
    b"9" * 30,
    b"0-" + b"9" * 12,
    b"12|RUNNING",
    b"UNKNOWN",
    b"\0",
    b"\xff",
    b"error: Unable to contact slurm controller",
    b"slurm_load_jobs error: Invalid job id specified",
    b",",
)


def make(random: Random) -> Case:
    """Answers of `squeue`, `sacct` and `sinfo`, a log of `srun`, and the file that says which job works on a run."""
    if random.random() < 0.2:
        said = _garbled(_SINFO, random).decode(errors="replace")
        return Case("SLURM: sinfo", {}, lambda: _partitions(said))
    answers = {"squeue": random.choice([b"", *_SQUEUE]), "sacct": random.choice([b"", *_SACCT])}
    files = {"run/slurm/12_0_log.err": _LOG, "run/slurm.json": b'{"schema": 1, "job_id": "12"}'}
    victim = random.choice([*answers, *files])
    if victim in answers:
        answers[victim] = _garbled(random.choice(_SQUEUE + _SACCT), random)
    else:
        files[victim] = json_text(files[victim], random) if victim.endswith("json") else _garbled(_LOG, random)
    return Case(f"SLURM: {victim}", files, lambda: _read(answers))


def _garbled(content: bytes, random: Random) -> bytes:
    return damaged(content, random) if random.random() < 0.3 else other_tokens(content, random, _TOKENS)


def _read(answers: dict[str, bytes]) -> object:
    """The readers of all of it, with the answers in the place of the commands."""
    slurm_log = slurm_jobs.ended_with_step(_RUN, "12"), slurm_jobs.exited(_RUN, "12")
    return _state({name: answer.decode(errors="replace") for name, answer in answers.items()}), slurm_log


def _state(answers: dict[str, str]) -> object:
    """What the job's state is taken for."""
    return job_state_of(_RUN, Controller(ask=lambda command: Reply(answers[command[0]], "", "")))


def _partitions(text: str) -> object:
    """What the cluster is said to have, as a launcher that asks for too much hears it."""
    with mock.patch.object(slurm, "sinfo", lambda: text):
        return slurm.SlurmLauncher().fit(HardwareConfig())
