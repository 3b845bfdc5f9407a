"""The kernel ends one rank for want of memory: who it was, whose limit it is, what to do; more memory goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hungry
import pytest

from gnnexp.launchers.status import Death, judge
from gnnexp.measure.available import limit_in_words
from gnnexp.record.records import read_epochs
from torture.processes.control_group import NoControlGroupsError, control_group, kills_of

_LIMIT, _MORE, _EPOCHS = 1600 << 20, 4000 << 20, 4
RUN = [
    "run",
    "tracker=none",
    "hardware.workers=2",
    "hardware.threads=1",
    "model.hidden=16",
    "train.batch_size=64",
    f"train.epochs={_EPOCHS}",
    "optimizer={_target_: hungry.Hungry, _partial_: true, lr: 0.1}",
    "hydra.run.dir=run",
]


def test_the_message_names_the_rank_the_limit_and_what_to_do(tmp_path: Path) -> None:
    outcome = judge(tmp_path, [Death(1, -9, 12.0, out_of_memory=True)])
    assert outcome.kind == "out of memory"
    assert outcome.reason == f"rank 1 was killed by the kernel: out of memory ({limit_in_words()})"
    assert "fix: give the run more memory" in outcome.message and "hardware.workers" in outcome.message


def test_a_rank_that_could_not_allocate_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    status = {
        "rank": 0,
        "state": "failed",
        "time": 12.0,
        "reason": "out of memory: 5 bytes available",
        "kind": "out of memory",
        "traceback": "MemoryError\n",
        "available_bytes": 5,
    }
    (tmp_path / "status" / "rank_0.json").write_text(json.dumps(status))
    outcome = judge(tmp_path, [Death(0, 1, 12.1)])
    assert outcome.message.splitlines()[-1].startswith("fix: give the run more memory")
    assert outcome.memory == {"available_bytes": 5} and outcome.kind == "out of memory"


def test_a_killed_rank_is_not_told_to_take_less_memory(tmp_path: Path) -> None:
    outcome = judge(tmp_path, [Death(1, -9, 12.0)])
    assert outcome.kind == "killed" and "memory" not in outcome.message


def in_group(group: Path, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(hungry.__file__).parent), os.environ.get("PYTHONPATH", "")]
    command = f'echo $$ > {group}/cgroup.procs && exec "$0" -m gnnexp "$@"'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *words],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def result(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "run" / "result.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.interpreter
@pytest.mark.timeout(300)
def test_a_rank_that_the_kernel_ends_and_the_run_that_goes_on_with_more(tmp_path: Path) -> None:
    (tmp_path / "hungry").touch()
    try:
        with control_group(_LIMIT) as group:
            done = in_group(group, tmp_path, *RUN)
            left = (group / "cgroup.procs").read_text().split()
            assert (done.returncode, kills_of(group), left) == (1, 1, []), done.stdout + done.stderr
    except NoControlGroupsError as error:
        pytest.skip(str(error))
    found = result(tmp_path)
    assert found["kind"] == "out of memory" and found["reason"].startswith("rank 1 on ")
    assert "killed by the kernel: out of memory (the limit of the control group is 1.6 GiB)" in found["reason"]
    assert found["reason"].split(":")[0] in done.stderr and "fix: give the run more memory" in done.stderr
    (tmp_path / "hungry").unlink()
    with control_group(_MORE) as group:
        done = in_group(group, tmp_path, "resume", "run")
        assert (done.returncode, kills_of(group)) == (0, 0), done.stderr
    assert result(tmp_path)["status"] == "finished" and len(read_epochs(tmp_path / "run")) == _EPOCHS
