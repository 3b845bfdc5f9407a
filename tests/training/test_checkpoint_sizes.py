"""The preflight's figure for checkpoints is an upper bound for every system, and not many times too high."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gnnexp.cli.main import run_command
from gnnexp.cli.running.prepare import prepare
from gnnexp.experiment.build import experiment_of
from gnnexp.training.checkpoint import checkpoint_folders

SYSTEMS = sorted(file.stem for file in Path("conf/system").resolve().glob("*.yaml"))
# Systems whose ranks keep rows of other ranks from epoch to epoch.
KEEPING = {
    "sancus": ["sancus"],
    "distgnn": ["distgnn", "paradigm.delay=2"],
    "late_rows": ["neutronstar_comm", "paradigm.delay=2"],
    "late_parts": ["neutronstar_comm", "paradigm.delay=1", "paradigm.exchange=broadcast"],
    "varied_parts": ["sancus_adaptive", "paradigm.cache_input_halo=false"],
    "binned_rows": ["neutronstar_comm", "paradigm.delay=3", "paradigm.bins=2", "paradigm.pipeline=true"],
    "averaged_rows": ["neutronstar_comm", "paradigm.delay=1", "paradigm.smooth_gradients=0.5"],
    "old_sums": ["distgnn", "paradigm.dependency=stale", "paradigm.staleness=2"],
}
QUICK = ("sancus", "distgnn")  # old rows of an edge-cut, late rows of a vertex-cut
ONE_WORKER = ("dgl_full_graph",)
# Archive headers, names of parameters, seeds and positions: of a rank's file and of the shared one.
OVERHEAD = 20_000
EPOCHS = 4


@pytest.mark.parametrize(
    ("system", "workers"),
    [
        pytest.param(name, workers, marks=() if name in QUICK and workers == 2 else pytest.mark.slow)
        for name in sorted({*SYSTEMS, *KEEPING})
        for workers in ((1,) if name in ONE_WORKER else (2, 3))
    ],
)
def test_a_checkpoint_is_no_larger_than_the_preflight_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], system: str, workers: int
) -> None:
    if system.startswith("dgl_"):
        pytest.importorskip("dgl")
    monkeypatch.chdir(tmp_path)
    preset, *options = KEEPING.get(system, [system])
    overrides = [
        f"system={preset}",
        "dataset=digits",
        "tracker=none",
        "model.hidden=16",
        f"hardware.workers={workers}",
        f"train.epochs={EPOCHS}",
        "train.checkpoint_every=1",
        "hydra.run.dir=run",
        *options,
    ]
    assert run_command(["run", *overrides]) == 0, capfd.readouterr().err
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    needs = prepare(experiment_of(config), Path("run/checkpoints")).estimate
    assert needs is not None
    (said,) = (need.num_bytes for need in needs.needs if need.what == "checkpoints")
    folders = checkpoint_folders(Path("run"))
    largest = max(sum(file.stat().st_size for file in folder.iterdir()) for folder in folders)
    # One more is there for a moment: the next one is written before the oldest is removed.
    assert (len(folders) + 1) * (largest - (1 + workers) * OVERHEAD) <= said
    if system in KEEPING:
        assert said <= 12 * (len(folders) + 1) * largest
