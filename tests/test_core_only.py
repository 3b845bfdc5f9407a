"""The training core runs where dgl, mlflow, submitit and Hydra are not installed (the nodes of a cluster)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from lacking import environment_without

from gnnexp.graph.storage.format import save_graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

ROOT = Path(__file__).parents[1]
# What `make test-core` blocks for its own tests.
(BLOCKED,) = re.findall(r"^NOT_CORE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _asked_for(folder: Path) -> Path:
    """A run directory with a resolved configuration, as `gnnexp run` leaves it for the ranks."""
    save_graph(nasty_graph(), folder / "graph")
    run_dir = folder / "run"
    run_dir.mkdir()
    request = {"schema": 1, "config": small_config(MODELS["gat"]), "graph": str(folder / "graph"), "partition": None}
    (run_dir / "job.json").write_text(json.dumps(request))
    return run_dir


def _assert_finished(run_dir: Path, done: subprocess.CompletedProcess[str]) -> None:
    status = run_dir / "status" / "rank_0.json"
    assert done.returncode == 0, json.loads(status.read_text()).get("traceback") if status.exists() else done.stderr
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["paradigm"] == {"exact": True, "approximates": ""}
    assert len(result["epochs"]) == 1
    assert "acc/test" in result["summary"]


@pytest.mark.slow  # in the folder of the test below nothing of what is blocked here is installed either
@pytest.mark.interpreter
def test_a_worker_trains_without_the_optional_packages(tmp_path: Path):
    run_dir = _asked_for(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "gnnexp.worker", str(run_dir)],
        capture_output=True,
        text=True,
        env=environment_without(BLOCKED.split(",")),
        timeout=240,
        check=False,
    )
    _assert_finished(run_dir, done)


@pytest.mark.interpreter
def test_a_worker_trains_from_a_folder_on_the_path_where_nothing_else_is_installed(tmp_path: Path):
    """A machine with an image of torch, and gnnexp copied to it: docs/install.md, "Not installed at all"."""
    run_dir, packages = _asked_for(tmp_path), tmp_path / "packages"
    packages.mkdir()
    for place in _files_of(("torch", "numpy", "numba", "scipy", "psutil")):
        (packages / place.name).symlink_to(place)
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "gnnexp").symlink_to(ROOT / "gnnexp")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "copied"), str(packages)])}
    # -S: nothing of site-packages, gnnexp's own metadata neither.
    missing = subprocess.run(
        [sys.executable, "-S", "-c", "import hydra"],
        capture_output=True,
        text=True,
        env=here,
        cwd=tmp_path,
        check=False,
    )
    assert missing.stderr.strip().endswith("No module named 'hydra'")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gnnexp.worker", str(run_dir)],
        capture_output=True,
        text=True,
        env=here,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    _assert_finished(run_dir, done)


def _files_of(names: Iterable[str]) -> set[Path]:
    """What distributions, and all that they require, have at the top of `site-packages`."""
    found: set[Path] = set()
    wanted, seen = list(names), set()
    while wanted:
        name = wanted.pop()
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for other systems, or for a GPU
            continue
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        found |= {place for top in tops if (place := Path(str(distribution.locate_file(top)))).exists()}
        required = [entry for entry in distribution.requires or () if "extra ==" not in entry]
        wanted += [
            found_name for entry in required if (found_name := re.split(r"[^A-Za-z0-9._-]", entry)[0]) not in seen
        ]
    return found


@pytest.mark.interpreter
def test_what_is_blocked_is_missing_in_every_process() -> None:
    """The test above would also pass where nothing is blocked."""
    code = (
        "from gnnexp.components.packages import is_installed; import importlib, subprocess, sys\n"
        f"for name in {BLOCKED!r}.split(','):\n"
        "    assert not is_installed(name)\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: assert error.name == name\n"
        "    else: raise AssertionError(name)\n"
        "sys.exit(subprocess.run([sys.executable, '-c', 'import hydra']).returncode)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment_without(BLOCKED.split(",")),
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().endswith("No module named 'hydra'")
