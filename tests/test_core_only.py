"""The training core runs where dgl, mlflow, submitit and Hydra are not installed (a CUDA box with another Python)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gnnexp.graph.format import save_graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

_WITHOUT = (
    "dgl", "mlflow", "submitit", "hydra", "omegaconf", "rich", "matplotlib", "sklearn", "pymetis", "pandas",
    "yaml",
)


def test_a_worker_trains_without_the_optional_packages(tmp_path: Path):
    save_graph(nasty_graph(), tmp_path / "graph")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    request = {"schema": 1, "config": small_config(MODELS["gat"]), "graph": str(tmp_path / "graph"), "partition": None}
    (run_dir / "job.json").write_text(json.dumps(request))
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({_WITHOUT!r}));"
        f"sys.argv = ['worker', {str(run_dir)!r}]; runpy.run_module('gnnexp.worker', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    status = json.loads((run_dir / "status" / "rank_0.json").read_text())
    assert done.returncode == 0, status.get("traceback", done.stderr)
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["paradigm"] == {"exact": True, "approximates": ""}
    assert len(result["epochs"]) == 1
    assert "acc/test" in result["summary"]
