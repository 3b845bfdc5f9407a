"""The record of a run says which data set was read, and whether its bytes are published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gnnexp.cli.main import run_command
from gnnexp.cli.running.prepare import checked_config
from gnnexp.cli.running.provenance import recorded_origin
from gnnexp.datasets.published.digits import Digits


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ring = scipy.sparse.csr_matrix(np.roll(np.eye(60, dtype=np.float32), 1, axis=1))
    np.savez(
        tmp_path / "karate_club.npz",
        labels=np.arange(60) % 3,
        attr_matrix=np.eye(60, 5),
        adj_data=ring.data,
        adj_indices=ring.indices,
        adj_indptr=ring.indptr,
        adj_shape=np.array(ring.shape),
    )
    return tmp_path / "karate_club.npz"


def test_a_configuration_has_the_name_of_the_files(archive: Path) -> None:
    lines = ["dataset=graphdata_npz", f"dataset.path={archive}", "tracker=none"]
    named = checked_config(lines, None)
    assert named.composed.config["dataset"]["name"] == named.experiment.dataset.name == "karate-club"
    assert named.experiment.config.mapping == named.composed.config
    assert checked_config([*lines, "dataset.name=mine"], None).composed.config["dataset"]["name"] == "mine"
    digits = checked_config(["dataset=digits", "tracker=none"], None)
    assert digits.composed.config["dataset"].get("name") in (None, "digits")


def test_a_run_records_its_data(archive: Path) -> None:
    assert (
        run_command(
            [
                "run",
                "dataset=graphdata_npz",
                f"dataset.path={archive}",
                "tracker=none",
                "train.epochs=1",
                "model.hidden=8",
                "hydra.run.dir=run",
            ]
        )
        == 0
    )
    result = json.loads(Path("run/result.json").read_text())
    assert result["config"]["dataset"]["name"] == result["provenance"]["data"]["name"] == "karate-club"
    assert not result["provenance"]["data"]["known"] and "bytes not known" in result["notes"][-1]
    assert recorded_origin(Digits()) is None
