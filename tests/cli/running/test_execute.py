"""What is said about a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.running.execute import lost_model
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
