"""A user's own YAML files (`--config-dir`), damaged or with other values: the product's, changed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from gnnexp.cli.running.prepare import checked_config
from gnnexp.config.folders import product_folder
from torture.fuzz.case import Case
from torture.fuzz.mutate.raw import damaged, other_tokens
from torture.fuzz.mutate.trees import changed

TOKENS = (
    b"!!python/object/apply:os.system ['touch executed']",
    b"!!python/name:os.system",
    b"&a",
    b"*a",
    b"- ",
    b"? ",
    b"{",
    b"[",
    b"_target_: torture.fuzz.guard.fire",
    b"torture.fuzz.guard.fire",
    b"os.system",
    b"defaults: [bad]",
    b"null",
    b".nan",
    b".inf",
    b"-1",
    b"9" * 5000,
    b"2020-01-01",
    b"0o17",
    b"${seed}",
    b"${oc.env:HOME}",
    b"???",
    b"\0",
    b"\xff",
    b"\t",
    b"|",
    b">",
    b"#",
    b"'",
    b'"',
    b"[" * 2000,
    b"1" + b"0" * 60,
    b"true",
    b"y",
    b"<<",
    b"1_000",
    b"0x1f",
    b"12:30:45",
    b"~",
)


def make(random: Random) -> Case:
    """A folder with one choice of one group, which the overrides choose."""
    group, content = random.choice(_own())
    files = {f"own/{group}/bad.yaml": damage_yaml(content, random)}
    if random.random() < 0.02:
        files[f"own/{random.choice(['', 'model/', 'nothing/'])}config.yaml"] = damaged(content, random)
    choice = [f"{group}=bad", *(["dataset=digits"] if group != "dataset" else []), "tracker=none", "hydra.run.dir=out"]
    return Case(f"{group}/bad.yaml", files, lambda: _check(choice), reads_anywhere=True)


def damage_yaml(content: bytes, random: Random) -> bytes:
    """YAML that is damaged, has other words, or other values at some keys."""
    how = random.random()
    if how < 0.2:
        return damaged(content, random)
    if how < 0.5:
        return other_tokens(content, random, TOKENS)
    tree: Any = yaml.safe_load(content)
    changed(tree, random)
    return bytes(yaml.safe_dump(tree, allow_unicode=True), "utf-8", "surrogatepass")


@lru_cache(maxsize=1)
def _own() -> list[tuple[str, bytes]]:
    """Group and content of the product's files."""
    groups = ("dataset", "feature_store", "hardware", "model", "paradigm", "partitioner", "sampler", "task", "train")
    files = [file for group in groups for file in sorted((product_folder("conf") / group).glob("*.yaml"))]
    return [
        (file.parent.name, file.read_bytes()) for file in files if isinstance(yaml.safe_load(file.read_bytes()), dict)
    ]


def _check(choice: list[str]) -> object:
    return checked_config(choice, str(Path("own")))
