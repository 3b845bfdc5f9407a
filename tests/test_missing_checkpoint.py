"""A run that has finished without its last checkpoint (a full disk) says so where its user reads the result."""

import json
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.console import make_console
from gnnexp.cli.running.execute import tell_result
from gnnexp.training.checkpoint import FOLDER, Position


@pytest.mark.parametrize(("every", "there", "said"), [(1, None, True), (1, 2, True), (1, 3, False), (0, None, False)])
def test_a_missing_last_checkpoint_is_told(tmp_path: Path, capsys, every, there, said) -> None:
    write_job(tmp_path)
    job = json.loads((tmp_path / "job.json").read_text())
    job["config"]["train"]["checkpoint_every"] = every
    (tmp_path / "job.json").write_text(json.dumps(job))
    write_epochs(tmp_path, 3)
    write_result(tmp_path)
    if there is not None:
        (tmp_path / FOLDER / Position(there).folder).mkdir(parents=True)
    tell_result(tmp_path, make_console())
    assert ("no checkpoint of the last epoch" in capsys.readouterr().out) is said
