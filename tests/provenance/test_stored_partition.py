"""A stored partition is an input like the data: another one under the same path makes another run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command

FIXED = [
    "dataset=digits",
    "tracker=none",
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[3]",
    "train.epochs=2",
    "paradigm=split_parallel",
    "hardware.workers=2",
    "partitioner=stored",
    "partitioner.path=parts",
]
PRETENDING = "hardware.launcher.worker_module=pretending_worker"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    _store(0)
    return tmp_path


def _store(seed: int) -> None:
    """Have a partition of this seed in `parts`."""
    before = set(Path("cache").glob("partitions/*"))
    assert (
        run_command(
            [
                "partition",
                "dataset=digits",
                "partitioner=random",
                f"partitioner.seed={seed}",
                "hardware.workers=2",
                "partitioner.num_parts=2",
            ]
        )
        == 0
    )
    (made,) = set(Path("cache").glob("partitions/*")) - before
    shutil.rmtree("parts", ignore_errors=True)
    shutil.copytree(made, "parts")


def test_a_sweep_runs_again_with_another_partition(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "mine.yaml").write_text(json.dumps({"fixed": [*FIXED, PRETENDING], "report": {"figures": []}}))
    assert run_command(["sweep", "mine.yaml"]) == 0
    assert run_command(["sweep", "mine.yaml"]) == 0 and "1 finished before" in capsys.readouterr().out
    _store(1)
    assert run_command(["sweep", "mine.yaml"]) == 0
    assert len(list((workplace / "runs" / "mine").iterdir())) == 2


def test_a_run_does_not_go_on_with_another_partition(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", *FIXED, PRETENDING, "hydra.run.dir=runs/one"]) == 0
    (workplace / "runs" / "one" / "result.json").unlink()
    _store(1)
    assert run_command(["resume", "runs/one"]) == 2
    assert "partitioner.path='parts': has changed since the run began" in capsys.readouterr().err
