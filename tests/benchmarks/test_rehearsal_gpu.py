"""The rehearsal of `make gpu-proof` on the emulated device: in a copy of what it needs, with the core's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain_checkout import not_core, plain_copy

from benchmarks.gpu.needed import ROOT
from benchmarks.gpu.proof import LIMITS
from emulated_gpu import is_wanted
from emulated_gpu.library import CACHE_VARIABLE

# `.ci/run` calls `make gpu-proof-rehearsal`, which takes as long.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these"),
]


def test_every_stage_is_complete_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    place, out = plain_copy(tmp_path / "checkout"), tmp_path / "out"
    environment = {
        **os.environ,
        "GNNEXP_WITHOUT": not_core(),
        "PYTHONPATH": str(ROOT / "tests/support/without"),
        CACHE_VARIABLE: str(Path(os.environ.get(CACHE_VARIABLE, ".gnnexp/emulated")).resolve()),
    }

    def proof(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "emulated_gpu",
            "-m",
            "benchmarks.gpu.proof",
            "--quick",
            "--minutes",
            "14",
            "--stages",
            "all",
            "--out",
            str(out),
            *words,
        ]
        return subprocess.run(command, cwd=place, env=environment, text=True, capture_output=True, check=False)

    done = proof()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EMULATED: no figure of speed" in done.stdout
    for name in LIMITS:
        found = json.loads((out / f"{name}.json").read_text())
        facts = found["facts"]
        assert found["complete"] and facts["emulated"] and facts["commit"] is None and facts["dirty"] is None
        assert found["rows"] and all(row["ok"] for row in found["rows"])
    assert "flops_tf32: " in (out / "profile.yaml").read_text()
    again = proof()
    assert again.returncode == 0 and again.stdout.count("done before, by the same files") == len(LIMITS)
