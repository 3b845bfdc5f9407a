"""Sweep files: axes, cases and reports that are damaged or of other types, expanded as `gnnexp sweep` does it."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import yaml

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import product_sweeps
from torture.fuzz.case import Case, command
from torture.fuzz.kinds.configs import damage_yaml

_SMALL = {
    "description": "a small sweep",
    "fixed": ["dataset=digits", "train.epochs=2", "tracker=none", "hardware.workers=2"],
    "axes": {"seed": [0, 1], "model.hidden": [16, 32]},
    "cases": [{"overrides": ["system=gsplit"]}, {"overrides": ["system=distdgl", "sampler.fanouts=[5,5]"]}],
    "full": ["train.epochs=3"],
    "report": {"rows": ["system"], "columns": ["acc/test"]},
}


def make(random: Random) -> Case:
    """A sweep file for `load_sweep`; now and then a small one for the whole command, which composes every case too.

    Hydra takes half a second for each choice of groups: the product's own sweeps with their 60 cases take 14 s.
    """
    content = random.choice(_own())
    if small := random.random() < 0.7:
        content = yaml.safe_dump(_SMALL, sort_keys=False).encode()
    options = random.choice([(), (), ("--full",), ("seed=0,1",), ("model.hidden=???",)])
    files = {"storm.yaml": damage_yaml(content, random)}
    if small and random.random() < 0.03:
        return Case(
            "gnnexp sweep", files, lambda: command(["sweep", "storm.yaml", "--dry-run", *options]), reads_anywhere=True
        )
    return Case("load_sweep", files, lambda: _load(options), reads_anywhere=True)


@lru_cache(maxsize=1)
def _own() -> list[bytes]:
    """The product's sweeps."""
    files = sorted(product_sweeps().values())
    return [file.read_bytes() for file in files if file.stat().st_size < 20_000]


def _load(options: tuple[str, ...]) -> object:
    lines = [option for option in options if "=" in option]
    return load_sweep("storm.yaml", lines, full="--full" in options)
