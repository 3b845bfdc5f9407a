"""Run directories and states of sweeps with damaged files, for every command that reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from unittest import mock

from gnnexp.cli import archives, claims, jobs, plan, report, resume  # noqa: F401  imported before children are forked
from gnnexp.launchers.base import Outcome
from torture.fuzz.case import Case, Kind, command
from torture.fuzz.mutate.raw import damaged, other_tokens
from torture.fuzz.mutate.trees import json_text

_ONE, _TWO = "runs/s/one", "runs/s/two"
# Pages and figures take a second each, so they are made less often.
_QUICK = (["status", _ONE], ["resume", _ONE], ["plan", "s", "--hardware", "all"], ["export", "s"], ["cancel", _ONE],
          ["report", "compare", _ONE, _TWO], ["report"], ["logs", _ONE])
_SLOW = (["report", _ONE], ["report", "s"], ["report", "--sync"])
_STATE = {
    "schema": 1, "name": "s", "description": "d", "command": "gnnexp sweep s", "report": {"rows": ["system"]},
    "cases": [
        {"label": "a", "key": "k", "dataset_key": "x", "run_dir": _ONE, "status": "finished", "reason": "",
         "overrides": []},
        {"label": "b", "key": "k2", "dataset_key": "x", "run_dir": _TWO, "status": "failed", "reason": "x",
         "overrides": []},
    ],
}


def kind(folder: Path) -> Kind:
    """Cases made of a real record, whose run is made in `folder` now."""
    whole = _record(folder)
    return lambda random: make(random, whole)


def make(random: Random, whole: Mapping[str, bytes]) -> Case:
    """Two runs of a sweep, of which one is damaged, and a command.

    Args:
        random: generator.
        whole: the files of a run directory.
    """
    arguments = random.choice(_QUICK if random.random() < 0.9 else _SLOW)
    files = {f"{place}/{name}": content for place in (_ONE, _TWO) for name, content in whole.items()}
    files["runs/sweeps/s.json"] = json.dumps(_STATE).encode()
    if arguments[0] in ("resume", "cancel") and random.random() < 0.8:
        del files[f"{_ONE}/result.json"]
    mine = [name for name in sorted(files) if not name.startswith(_TWO)]
    often = [name for name in mine if name.endswith(("result.json", "job.json", "s.json", "epochs.jsonl"))]
    for name in random.sample(mine + 2 * often, random.choice([1, 1, 2])):
        files[name] = _damage(name, files[name], random)
    return Case(f"gnnexp {' '.join(arguments)}", files, lambda: _run(arguments))


def _damage(name: str, content: bytes, random: Random) -> bytes:
    if not content:
        return random.randbytes(30)
    if name.endswith((".json", ".jsonl")):
        return json_text(content, random)
    return other_tokens(content, random) if random.random() < 0.5 else damaged(content, random)


def _run(arguments: list[str]) -> None:
    """The command, except that no rank is started and no process ended."""
    with mock.patch.object(resume, "carry_out", lambda *_, **__: Outcome(1, "failed", "not started")):
        command(arguments)


def _record(folder: Path) -> Mapping[str, bytes]:
    """What a run of two small epochs leaves, without its checkpoints, tensors and figures."""
    run_dir = folder.absolute() / "run"
    if not (run_dir / "result.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "gnnexp", "run", "dataset=digits", "model.hidden=8", "train.epochs=2",
             "tracker=none",
             "hardware.workers=1", f"hydra.run.dir={run_dir}"], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, f"the run whose record is to be damaged failed:\n{done.stderr}"
    paths = [path for path in sorted(run_dir.rglob("*")) if path.is_file() and path.suffix not in (".pt", ".png",
        ".svg")]
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in paths}
