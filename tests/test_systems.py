"""Every mini-batch system through the command line: it trains, and its record has the rounds that its paper says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command

STEPS, LAYERS = 5, 3  # 1078 training vertices of digits in batches of 256, over 2 ranks
# Payload rounds per batch by purpose, gradients apart (docs/systems.md).
ROUNDS = {
    "gsplit": {"frontier": LAYERS, "features": 1, "activations": 2 * (LAYERS - 1)},
    "p3": {"topology": 1, "activations": 2},
    "fastsample": {"features": 2},
    "quiver": {"features": 2},
    "distdgl": {"frontier": 2 * (LAYERS - 1), "features": 2},
}
QUICK = ("gsplit",)


@pytest.mark.parametrize(
    "system", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ROUNDS]
)
def test_it_trains_and_makes_the_rounds_of_its_paper(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if system == "distdgl":
        pytest.importorskip("dgl")
    run = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    assert (
        run_command(
            [
                "run",
                f"system={system}",
                "train=default",
                "dataset=digits",
                "sampler.fanouts=[5,4,3]",
                "model.hidden=16",
                "hardware.workers=2",
                "train.epochs=2",
                "train.batch_size=256",
                "tracker=none",
                f"hydra.run.dir={run}",
            ]
        )
        == 0
    )
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished" and result["paradigm"]["exact"]
    metrics = result["epochs"][1]["metrics"]
    rounds = {name.removeprefix("comm/rounds_"): value for name, value in metrics.items() if "rounds" in name}
    expected = {tag: count * STEPS for tag, count in ROUNDS[system].items()} | {"gradients": STEPS}
    assert {tag: count for tag, count in rounds.items() if tag != "sizes"} == expected
    for kind in ("edges", "vertices"):
        by_layer = [metrics[f"work/{kind}_layer{layer}"] for layer in range(1, LAYERS + 1)]
        assert sum(by_layer) == metrics[f"work/{kind}_{'sampled' if kind == 'edges' else 'computed'}"]
    sizes = result["provenance"]["graph"]
    assert (sizes["num_nodes"], sizes["num_features"], sizes["num_classes"], sizes["num_train"]) == (1797, 64, 10, 1078)
    if system == "gsplit":
        (sampled,) = result["presampled"]
        assert sampled["epochs"] == 10 and len(sampled["convergence"]) == 9
        assert "pre-sampled 10 epochs" in capsys.readouterr().out
        assert all(rank["memory"]["cache_bytes"] > 0 for rank in result["epochs"][1]["ranks"])
