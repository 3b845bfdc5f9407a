"""Commands in a real control group with little memory: what does not fit is refused in words, and nobody is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torture.processes.control_group import NoControlGroupsError, control_group, kills_of

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]
_MEMORY = 700 << 20


@pytest.fixture
def group() -> Iterator[Path]:
    try:
        with control_group(_MEMORY) as place:
            yield place
    except NoControlGroupsError as error:
        pytest.skip(str(error))


def gnnexp(group: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in the group from its first instruction on."""
    joined = f'echo $$ > {group}/cgroup.procs && exec "$0" -m gnnexp "$@"'
    return subprocess.run(["sh", "-c", joined, sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("vertices", [3_000_000, 8_000_000, 10_000_000, 30_000_000, 1_000_000_000])
def test_a_file_that_declares_many_vertices_is_refused_or_shown(group: Path, tmp_path: Path, vertices: int) -> None:
    file = tmp_path / "a.mtx"
    file.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{vertices} {vertices} 1\n1 1\n")
    done = gnnexp(group, "data", str(file))
    assert kills_of(group) == 0, done.stderr
    assert (done.returncode == 2 and "available" in done.stderr) or done.returncode == 0, done.stderr


def test_it_says_whose_limit_it_is(group: Path) -> None:
    done = gnnexp(group, "info")
    assert "of 0.7 GiB (the limit of a control group; the machine has" in done.stdout.replace("\n", " "), done.stderr


def test_a_run_that_does_not_fit_is_refused_before_it_starts(group: Path, tmp_path: Path) -> None:
    done = gnnexp(
        group,
        "run",
        "dataset=dcsbm",
        "dataset.num_nodes=2000000",
        "tracker=none",
        "hardware.workers=2",
        "train.epochs=1",
        f"hydra.run.dir={tmp_path}/run",
    )
    assert kills_of(group) == 0, done.stderr
    assert done.returncode == 2, done.stderr
    assert "GiB" in done.stderr
