"""The PyG script learns digits on one rank and on two, and stands in a report next to DGL and gnnexp."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.record.records import load_result
from gnnexp.record.runs import find_runs

EXAMPLE = Path(__file__).parent.parent
OVERRIDES = [
    "dataset=digits",
    "model.hidden=64",
    "train.batch_size=256",
    "train.epochs=8",
    "tracker=none",
    "hardware.device=cpu",
    "hydra.run.dir=run",
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example's files, as in the page, but with runs of its own."""
    for file in EXAMPLE.iterdir():
        if file.name != "tests":
            (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_it_learns(workers: int) -> None:
    words = ["system=pyg_sage", "--config-dir", "conf", f"hardware.workers={workers}", *OVERRIDES]
    assert run_command(["run", *words]) == 0
    result = load_result(Path("run"))
    assert result["summary"]["acc/test"] > 0.9 and result["config"]["system"] == "pyg_sage"
    assert result["paradigm"]["external"]["uses"] == ["model", "optimizer", "seed", "train"]
    assert [Path(file).name for file in result["paradigm"]["external"]["files"]] == ["pyg_sage.py"]
    said, passed = (sum(line["metrics"][f"time/{name}_s"] for line in result["epochs"]) for name in ("epoch", "wall"))
    assert 0 < said <= passed


@pytest.mark.slow
def test_ranks_train_the_same_as_one(tmp_path: Path) -> None:
    """The losses of one rank and of two agree: a global batch is the same, and no dropout is drawn."""
    losses = []
    for workers in (1, 2):
        words = [
            "system=pyg_sage",
            "--config-dir",
            "conf",
            f"hardware.workers={workers}",
            *OVERRIDES,
            "model.dropout=0",
            "train.epochs=3",
            f"hydra.run.dir=run{workers}",
        ]
        assert run_command(["run", *words]) == 0
        losses.append([line["metrics"]["loss/train"] for line in load_result(Path(f"run{workers}"))["epochs"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_in_a_sweep_next_to_others(capfd: pytest.CaptureFixture[str]) -> None:
    more = ["tracker=none", "train.epochs=4", "system=pyg_sage,dgl_reference", "hardware.device=cpu"]
    assert run_command(["sweep", "compare.yaml", "--config-dir", "conf", *more]) == 0
    assert {run.value("system"): run.facts["approximates"] for run in find_runs(Path("runs"))}["pyg_sage"].startswith(
        "external system: not checked by gnnexp"
    )
    page = Path("reports/compare/report.html").read_text()
    assert "pyg_sage approximates: external system: not checked by gnnexp" in page
    assert "pyg_sage" in capfd.readouterr().out
