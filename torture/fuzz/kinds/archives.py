"""Files of `gnnexp export`, forged and damaged, for `gnnexp import` where a run has begun."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from random import Random

from torture.fuzz.case import Case, command
from torture.fuzz.mutate.packed import tar
from torture.fuzz.mutate.raw import damaged
from torture.fuzz.mutate.trees import json_text

_RESULT = (Path(__file__).parents[1] / "record" / "result.json").read_text(encoding="utf-8")
_STATE = json.dumps(
    {
        "schema": 1,
        "name": "x",
        "report": {},
        "cases": [
            {"label": "a", "run_dir": "runs/x/a0", "status": "finished", "key": "k", "reason": "", "overrides": []}
        ],
    }
)
_MEMBERS = [
    *(
        (f"runs/x/a{number}/{name}", text.encode())
        for number in range(3)
        for name, text in (
            ("result.json", _RESULT),
            ("job.json", "{}"),
            ("epochs.jsonl", "{}\n"),
            ("config.yaml", "a: 1\n"),
        )
    ),
    ("runs/sweeps/x.json", _STATE.encode()),
]
_NAMES = (
    "",
    ".",
    "..",
    "/tmp/escaped/result.json",
    "runs/../../escaped/result.json",
    "runs/result.json",
    "runs/sweeps/result.json",
    "runs/result.json/result.json",
    "runs/" + "a" * 300 + "/result.json",
    "runs/" + "a/" * 5000 + "result.json",
    "runs/a\nb\x1b[31m/result.json",
    "runs/sweeps/..json",
    "runs/sweeps/.json",
    "runs/sweeps/../../escaped.json",
    "runs/x/a1",
    "runs/begun/job.json",
    "runs/begun/result.json",
    "job.json",
    "conf/config.yaml",
    ".gnnexp/result.json",
    "runs//result.json",
)
_BEGUN = b'{"my": "run that has begun"}'


def make(random: Random) -> Case:
    """An archive of which nothing may be left where it is refused, and whose runs never replace what is here."""
    plain = tar(_MEMBERS, random, json_text, _NAMES)
    packed = lzma.compress(plain, preset=0)
    if random.random() < 0.2:
        packed = damaged(packed, random)
    return Case("archive", {"gift.tar.xz": packed, "runs/begun/job.json": _BEGUN}, _import)


def _import() -> None:
    """The command itself; what was here before must be as it was, whatever comes of the import."""
    try:
        command(["import", "gift.tar.xz"])
    finally:
        assert Path("runs/begun/job.json").read_bytes() == _BEGUN, "a run that had begun was overwritten"
