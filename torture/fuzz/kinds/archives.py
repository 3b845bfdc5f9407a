"""Files of `gnnexp export`, forged and damaged, for `gnnexp import` where a run has begun."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

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
    if random.random() < 0.5:
        return Case("archive", {"gift.parquet": _parquet(random), "runs/begun/job.json": _BEGUN}, _import_parquet)
    plain = tar(_MEMBERS, random, json_text, _NAMES)
    packed = lzma.compress(plain, preset=0)
    if random.random() < 0.2:
        packed = damaged(packed, random)
    return Case("archive", {"gift.tar.xz": packed, "runs/begun/job.json": _BEGUN}, _import)


def _parquet(random: Random) -> bytes:
    """Rows of which one has another name or other JSON; the file may be damaged, too."""
    rows = [[name, content.decode()] for name, content in _MEMBERS if name.endswith(("result.json", "sweeps/x.json"))]
    victim = random.choice(rows)
    if random.random() < 0.3:
        victim[0] = random.choice(_NAMES)
    else:
        victim[1] = json_text(victim[1].encode(), random).decode(errors="replace")
    names, records = zip(*rows, strict=True)
    packed = io.BytesIO()
    pq.write_table(pa.table({"name": names, "record": records}), packed, compression="zstd")
    return damaged(packed.getvalue(), random) if random.random() < 0.4 else packed.getvalue()


def _import_parquet() -> None:
    _import("gift.parquet")


def _import(file: str = "gift.tar.xz") -> None:
    """The command itself; what was here before must be as it was, whatever comes of the import."""
    try:
        command(["import", file])
    finally:
        assert Path("runs/begun/job.json").read_bytes() == _BEGUN, "a run that had begun was overwritten"
