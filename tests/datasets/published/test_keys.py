"""Keys of published data sets and of their runs stay: the first ones of gnnexp 0.2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.config.compose import compose
from gnnexp.datasets import base
from gnnexp.datasets.base import ROOT_VARIABLE, Dataset
from gnnexp.experiment.build import build
from gnnexp.experiment.run_key import run_key
from gnnexp.provenance.code import RunCode

# The first digits of the key of the data, and of a run's.
BEFORE = {
    "planetoid": ("b39f490b690fb600", "aca0a656d4e9e143"),
    "planetoid dataset.name=nell": ("f9164744b7f29125", "dfcbcff642a6ed9c"),
    "graphdata_npz": ("2feda1faa14a2fcc", "09b1346508b74587"),
    "heterophilous_npz": ("726aaf5bb8b74ea8", "2dc61d86fa4c84db"),
    "fb100": ("f626169f2955f2cd", "a53cea4bafa1e42c"),
    "aminer": ("3b93c245a86fd017", "ff1d4f95e554e34e"),
    "ogb dataset.name=ogbl-ddi": ("029ec98c8aa8ce2f", "304a07f1d4ffb5d6"),
    "fb15k_237": ("dd69e884b33d6fa2", "512933336980e9e1"),
}
FOLDERS = {
    "planetoid": "cora",
    "planetoid dataset.name=nell": "nell",
    "graphdata_npz": "amazon-computers",
    "heterophilous_npz": "tolokers",
    "fb100": "fb100-cornell5",
    "aminer": "aminer",
    "fb15k_237": "fb15k-237",
    "ogb dataset.name=ogbl-ddi": "ogbl-ddi",
}


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
    assert (key[:16], run_key(config, key, RunCode({}))[:16]) == BEFORE[case]


def test_verify_is_no_part_of_the_key_of_a_run() -> None:
    keys = {
        run_key(compose([f"dataset={one}", f"dataset.verify={word}", "tracker=none"]).config, "k", RunCode({}))
        for one in ("planetoid", "aminer")
        for word in ("true", "false")
    }
    assert len(keys) == 2
