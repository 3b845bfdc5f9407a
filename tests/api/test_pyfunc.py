"""The best model in MLflow: stored without a pickle, loaded with gnnexp's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gnnexp
from gnnexp.trackers.delivery import read_delivery
from gnnexp.trackers.model import log_model

QUICK = (
    "dataset=digits",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[3]",
    "train.epochs=3",
    "hardware.device=cpu",
    "tracker.log_model=true",
)


def files_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_best_model_is_stored_and_loaded(
    tmp_path: Path, mlflow_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import pandas as pd

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    uri = mlflow_store(tmp_path)
    run = gnnexp.run(*QUICK, f"tracker.uri={uri}", "tracker.timeout_s=200")
    run_id = read_delivery(run.run_dir, uri).run_id
    client = mlflow.MlflowClient(tracking_uri=uri)
    folder = Path(client.download_artifacts(run_id, "model", str(tmp_path)))
    assert not [name for name in files_below(folder) if name.endswith((".pkl", ".pickle"))]
    assert not (run.run_dir / ".model").exists()
    mlflow.set_tracking_uri(uri)
    loaded = mlflow.pyfunc.load_model(f"runs:/{run_id}/model")
    expected = gnnexp.load(run)()
    found = loaded.predict(pd.DataFrame({"vertex": [5, 0, 1796]}))
    assert torch.equal(torch.as_tensor(found), expected[[5, 0, 1796]])
    assert loaded.metadata.metadata["epoch"] == run.best.epoch  # type: ignore[union-attr]
    for wrong in (-1, 1797):
        with pytest.raises(gnnexp.DataError, match="must be a vertex of"):
            loaded.predict(pd.DataFrame({"vertex": [0, wrong]}))
    with pytest.raises(Exception, match="vertex"):
        loaded.predict(pd.DataFrame({"id": [0]}))
    assert log_model(client, run_id, run.run_dir), "once more does no harm"
    assert torch.equal(
        torch.as_tensor(mlflow.pyfunc.load_model(f"runs:/{run_id}/model").predict(pd.DataFrame({"vertex": [3]}))),
        expected[[3]],
    )


class Recording:
    """A client that notes what it is asked to store."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    def log_artifact(self, run_id: str, file: str, place: str) -> None:
        self.stored.append(f"{place}/{Path(file).name}")


@pytest.mark.parametrize(
    "overrides", [("train.checkpoint_every=0",), pytest.param(("train.eval_every=null",), marks=pytest.mark.slow)]
)
def test_without_a_best_model_none_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    run = gnnexp.run(*QUICK[:-1], "tracker=none", *overrides)
    client = Recording()
    assert not log_model(client, "id", run.run_dir) and client.stored == []  # type: ignore[arg-type]


def test_a_link_that_leads_elsewhere_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    run = gnnexp.run(*QUICK[:-1], "tracker=none")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    link = run.run_dir / "checkpoints" / "best"
    client = Recording()
    assert log_model(client, "id", run.run_dir)  # type: ignore[arg-type]
    assert any(one.endswith("shared.pt") for one in client.stored)
    client.stored.clear()
    link.unlink()
    link.symlink_to(tmp_path / "secret")
    assert not log_model(client, "id", run.run_dir) and client.stored == []  # type: ignore[arg-type]
