"""Run directories and states of sweeps with damaged files, for every command that reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from unittest import mock

import matplotlib.font_manager  # noqa: F401  asks the system for its fonts, once, when it is imported

from gnnexp.cli.commands import archives, claims, jobs, report, resume, sweep  # noqa: F401  imported before forks
from gnnexp.launchers.base import Outcome
from torture.fuzz.case import Case, command
from torture.fuzz.mutate.raw import damaged, other_tokens
from torture.fuzz.mutate.trees import json_text

_ONE, _TWO = "runs/s/one", "runs/s/two"
# Pages and figures take a second each, so they are made less often.
QUICK = (
    ["status", _ONE],
    ["resume", _ONE],
    ["plan", "s", "--hardware", "all"],
    ["export", "s"],
    ["cancel", _ONE],
    ["report", "compare", _ONE, _TWO],
    ["report"],
    ["logs", _ONE],
)
SLOW = (["report", _ONE], ["report", "s"], ["report", "--sync"])
_STATE = {
    "schema": 1,
    "name": "s",
    "description": "d",
    "command": "gnnexp sweep s",
    "report": {"rows": ["system"]},
    "cases": [
        {
            "label": "a",
            "key": "k",
            "dataset_key": "x",
            "run_dir": _ONE,
            "status": "finished",
            "reason": "",
            "overrides": [],
        },
        {
            "label": "b",
            "key": "k2",
            "dataset_key": "x",
            "run_dir": _TWO,
            "status": "failed",
            "reason": "x",
            "overrides": [],
        },
    ],
}


def make(random: Random) -> Case:
    """Two runs of a sweep, of which one is damaged, and a command."""
    arguments = random.choice(QUICK if random.random() < 0.9 else SLOW)
    files = whole()
    if arguments[0] in ("resume", "cancel") and random.random() < 0.8:
        del files[f"{_ONE}/result.json"]
    mine = [name for name in sorted(files) if not name.startswith(_TWO)]
    often = [name for name in mine if name.endswith(("result.json", "job.json", "s.json", "epochs.jsonl"))]
    for name in random.sample(mine + 2 * often, random.choice([1, 1, 2])):
        files[name] = _damage(name, files[name], random)
    return Case(f"gnnexp {' '.join(arguments)}", files, lambda: run(arguments))


def _damage(name: str, content: bytes, random: Random) -> bytes:
    if not content:
        return random.randbytes(30)
    if name.endswith((".json", ".jsonl")):
        return json_text(content, random)
    return other_tokens(content, random) if random.random() < 0.5 else damaged(content, random)


def run(arguments: list[str]) -> None:
    """The command, except that no rank is started and no process ended."""
    with mock.patch.object(resume, "carry_out", lambda *_, **__: Outcome(1, "failed", "not started")):
        command(arguments)


def whole() -> dict[str, bytes]:
    """The files of two runs and of their sweep, undamaged."""
    files = {f"{place}/{name}": content for place in (_ONE, _TWO) for name, content in _record().items()}
    return {**files, "runs/sweeps/s.json": json.dumps(_STATE).encode()}


@lru_cache(maxsize=1)
def _record() -> Mapping[str, bytes]:
    """What a run of two small epochs on two ranks left, without checkpoints and figures."""
    folder = Path(__file__).parents[1] / "record"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
