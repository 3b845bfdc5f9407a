"""What is said about a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.cli.running.execute import lost_model
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.record.runs import read_run
from gnnexp.training.checkpoint import FOLDER, Position


@pytest.mark.parametrize(("epochs", "kept", "is_lost"), [(3, 3, False), (3, 2, True), (2, 2, False), (2, 1, True)])
def test_the_model_of_the_last_epoch_is_lost_only_without_its_checkpoint(
    tmp_path: Path, epochs: int, kept: int, is_lost: bool
) -> None:
    """The run asks for 3 epochs. It may end earlier, by `train.patience` or `train.stop_below`."""
    write_job(tmp_path)
    write_epochs(tmp_path, epochs)
    write_result(tmp_path)
    (tmp_path / FOLDER / Position(kept).folder).mkdir(parents=True)
    assert bool(lost_model(read_run(tmp_path))) == is_lost


def test_a_run_without_validation_vertices_says_so_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(LocalLauncher, "launch", lambda *_: Outcome(1, "failed", "pretended", "pretended", "error"))
    rows = "".join(f"{one},{'ab'[one % 2]},{('train', 'test')[one % 3 == 0]},{one}\n" for one in range(12))
    Path("nodes.csv").write_text("id,label,split,f\n" + rows)
    Path("edges.csv").write_text("source,target\n" + "".join(f"{one},{one + 1}\n" for one in range(11)))
    for more in ([], ["--dry-run"]):  # a dry run looks at data that are prepared
        run_command(
            [
                "run",
                "dataset=tables",
                "dataset.path=.",
                "dataset.nodes=nodes.csv",
                "dataset.split=column",
                "tracker=none",
                *more,
            ]
        )
        assert "note: there are no validation vertices: the last evaluated epoch counts" in capsys.readouterr().out
