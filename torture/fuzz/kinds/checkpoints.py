"""Checkpoints: damaged files under right checksums (whoever writes a checkpoint writes its checksums), and without."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import torch

from gnnexp.training.checkpoint import latest_checkpoint, open_checkpoint
from torture.fuzz.case import Case
from torture.fuzz.mutate.arrays import zipped
from torture.fuzz.mutate.raw import PAYLOADS, damaged
from torture.fuzz.mutate.trees import json_text

_FOLDER = "run/checkpoints/00000001-0000000000"


def make(random: Random) -> Case:
    """A folder that `open_checkpoint`, `verify` and the readers of its parts have to refuse, or to read."""
    files = dict(_whole())
    victim = random.choice(["shared.pt", "rank_0.pt", "checkpoint.json"])
    if victim != "checkpoint.json":
        files[victim] = _archive(files[victim], random)
    if victim == "checkpoint.json" or random.random() < 0.9:
        files["checkpoint.json"] = _described(files)
    if victim == "checkpoint.json":
        files[victim] = json_text(files[victim], random)
    return Case(f"checkpoint: {victim}", {f"{_FOLDER}/{name}": data for name, data in files.items()}, _read)


@lru_cache(maxsize=1)
def _whole() -> dict[str, bytes]:
    """Two files as training writes them, small."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    contents = {
        "shared.pt": {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict()["state"],
            "epoch": 1,
            "text": "x",
        },
        "rank_0.pt": {"generator": torch.get_rng_state(), "record": [1.5, None, {"bytes": 3}], "done": True},
    }
    return {name: _saved(content) for name, content in contents.items()}


def _saved(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _archive(content: bytes, random: Random) -> bytes:
    if random.random() > 0.1:
        return zipped(content, random)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in (("data.pkl", random.choice(PAYLOADS)), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", data)
    return made.getvalue() if random.random() < 0.9 else damaged(made.getvalue(), random)


def _described(files: dict[str, bytes]) -> bytes:
    entries = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name.endswith(".pt")
    }
    position = {"epoch": 1, "step": 0}
    return json.dumps({"schema": 1, "position": position, "num_ranks": 1, "files": entries}).encode()


def _read() -> object:
    latest_checkpoint(Path("run"))
    opened = open_checkpoint(Path(_FOLDER))
    opened.verify()
    return opened.shared(), opened.of_rank(0)
