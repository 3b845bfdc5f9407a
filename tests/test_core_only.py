"""The training core runs where dgl, mlflow, submitit and Hydra are not installed (the nodes of a cluster)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from lacking import environment_without

from gnnexp.graph.format import save_graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

ROOT = Path(__file__).parents[1]
# What `make test-core` blocks for its own tests.
(BLOCKED,) = re.findall(r"^NOT_CORE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_a_worker_trains_without_the_optional_packages(tmp_path: Path):
    save_graph(nasty_graph(), tmp_path / "graph")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    request = {"schema": 1, "config": small_config(MODELS["gat"]), "graph": str(tmp_path / "graph"), "partition": None}
    (run_dir / "job.json").write_text(json.dumps(request))
    done = subprocess.run([sys.executable, "-m", "gnnexp.worker", str(run_dir)], capture_output=True, text=True,
                          env=environment_without(BLOCKED.split(",")), timeout=120, check=False)
    status = json.loads((run_dir / "status" / "rank_0.json").read_text())
    assert done.returncode == 0, status.get("traceback", done.stderr)
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["paradigm"] == {"exact": True, "approximates": ""}
    assert len(result["epochs"]) == 1
    assert "acc/test" in result["summary"]


def test_what_is_blocked_is_missing_in_every_process() -> None:
    """The test above would also pass where nothing is blocked."""
    code = ("from gnnexp.config.packages import is_installed; import importlib, subprocess, sys\n"
            f"for name in {BLOCKED!r}.split(','):\n"
            "    assert not is_installed(name)\n"
            "    try: importlib.import_module(name)\n"
            "    except ModuleNotFoundError as error: assert error.name == name\n"
            "    else: raise AssertionError(name)\n"
            "sys.exit(subprocess.run([sys.executable, '-c', 'import hydra']).returncode)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env=environment_without(BLOCKED.split(",")))
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().endswith("No module named 'hydra'")
