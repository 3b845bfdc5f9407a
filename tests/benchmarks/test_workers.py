"""The processes that benchmarks measure: each of them runs, with as many ranks as its benchmark gives it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.peers import environments
from gnnexp.cli.running.prepare import prepare
from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of

COMMON = ("tracker=none", "hardware.device=cpu", "preflight=off", "dataset=digits", "model.hidden=8", "model.layers=2")
MINI_BATCH = ("sampler.fanouts=[5,5]", "train.batch_size=256")
pytestmark = [pytest.mark.slow, pytest.mark.interpreter]


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    """The scripts, which find each other in their own folders."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("benchmarks/peers", "benchmarks"):
            patch.syspath_prepend(environments.ROOT / folder)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("ranks", "driver")})


def answers(scripts: SimpleNamespace, script: str, runs: Path, *overrides: str, **request: Any) -> list[Any]:
    """What the ranks of a worker answer in its second turn."""
    config = compose([*COMMON, *overrides]).config
    made = prepare(experiment_of(config), runs)
    ranks = scripts.ranks.Ranks(script, config, graph=str(made.folder), partition=str(made.partition), **request)
    ranks.ask()
    second = ranks.ask()
    ranks.close()
    assert isinstance(second, list)
    return second


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_train_epochs(scripts: SimpleNamespace, tmp_path: Path, ranks: int) -> None:
    second = answers(scripts, "epoch_worker.py", tmp_path, "system=distdgl", *MINI_BATCH, f"hardware.workers={ranks}")
    assert len(second) == ranks and all(0 < rank["loss"] < 10 and rank["epoch_s"] > 0 for rank in second)


def test_ranks_split_batches(scripts: SimpleNamespace, tmp_path: Path) -> None:
    overrides = ("system=gsplit", *MINI_BATCH, "feature_store=local", "partitioner=random", "hardware.workers=2")
    second = answers(scripts, "split_worker.py", tmp_path, *overrides)
    assert len(second) == 2 and sum(rank["edges"] for rank in second) > 0


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_pyg_trains_the_same_models(scripts: SimpleNamespace, tmp_path: Path, model: str) -> None:
    pytest.importorskip("torch_geometric")
    overrides = ("system=neutronstar_comm", f"model={model}", "hardware.workers=1")
    (second,) = answers(scripts, "pyg_worker.py", tmp_path, *overrides, csr=False, threads=1)
    assert 0 < second["loss"] < 10


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_peers_are_asked_for_a_model_by_the_name_that_they_know(scripts: SimpleNamespace, model: str) -> None:
    config = compose([*COMMON, f"model={model}"]).config
    request = scripts.driver.Request(measure="", config=config, graph="", inputs="")
    assert request.model == model
