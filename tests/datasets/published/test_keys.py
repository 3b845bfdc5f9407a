"""Keys of published data sets and of their runs are those from before any name was read (cf0224f5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.config.compose import compose
from gnnexp.datasets import base
from gnnexp.datasets.base import ROOT_VARIABLE, Dataset
from gnnexp.experiment.build import build
from gnnexp.provenance.code import Code
from gnnexp.provenance.run_key import run_key

# The first digits of the key of the data, and of a run's.
BEFORE = {
    "planetoid": ("db883f4cb627c7e4", "b2c63a27fc1ec0f3"),
    "planetoid dataset.name=nell": ("f3ecb862f764a918", "40033f6227805724"),
    "graphdata_npz": ("e201199f510818cf", "a31e4363c35ca2c2"),
    "heterophilous_npz": ("7149660a01bed09f", "e210861b762efe71"),
    "fb100": ("24fa4d03b9c1c07a", "f6b03129776a930e"),
    "aminer": ("22ba05f7fb6ebd00", "dd0d5dd5fce0019f"),
    "ogb dataset.name=ogbl-ddi": ("f88d08ed971ee804", "502ae90272abb80e"),
    "fb15k_237": ("31a2d96a15f4c113", "0fd2e5bfb160c7f4"),
}
FOLDERS = {"planetoid": "cora", "planetoid dataset.name=nell": "nell", "graphdata_npz": "amazon-computers",
           "heterophilous_npz": "tolokers", "fb100": "fb100-cornell5", "aminer": "aminer", "fb15k_237": "fb15k-237",
           "ogb dataset.name=ogbl-ddi": "ogbl-ddi"}


@pytest.mark.parametrize("place", ["root", "path"])
@pytest.mark.parametrize("case", BEFORE)
def test_keys_stay(case: str, place: str, real: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "code_key", lambda cls: "")
    folder = real(FOLDERS[case])
    if place == "root":
        monkeypatch.setenv(ROOT_VARIABLE, str(folder.parent))
    where = [f"dataset.path={folder}"] if place == "path" else []
    config = compose([*f"dataset={case}".split(), *where, "tracker=none"]).config
    key = build(config["dataset"], Dataset).key()
    assert (key[:16], run_key(config, key, Code({}, {}))[:16]) == BEFORE[case]


def test_verify_is_no_part_of_the_key_of_a_run() -> None:
    keys = {run_key(compose([f"dataset={one}", f"dataset.verify={word}", "tracker=none"]).config, "k", Code({}, {}))
            for one in ("planetoid", "aminer") for word in ("true", "false")}
    assert len(keys) == 2
