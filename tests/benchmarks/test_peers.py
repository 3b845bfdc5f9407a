"""Comparisons with peers, without any peer: environments, inputs, turns, ratios. One slow test runs the real peers."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_graphs import full_graph

from benchmarks.peers import environments
from benchmarks.peers.environments import MADE, PLACE, Peer, build, peers, python_of
from gnnexp.config.compose import compose

ROOT = environments.ROOT


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    """The scripts, which find each other in their own folders."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("benchmarks/peers", "benchmarks"):
            patch.syspath_prepend(ROOT / folder)
        names = ("against_peers", "ranks", "driver", "peers.inputs")
        yield SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(name) for name in names})


class Installs:
    """Records commands, of which those that contain `fails` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails, self.commands = "", list[list[str]]()
        monkeypatch.setattr(environments.venv, "create", lambda folder, **_: folder.mkdir(parents=True, exist_ok=True))
        monkeypatch.setattr(environments.subprocess, "run", self._run)

    def _run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, int(bool(self.fails) and self.fails in " ".join(command)))


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    file = tmp_path / "needed.txt"
    file.write_text("a==1\n")
    return Peer((("first",), ("-r", str(file))), "json")


def test_a_missing_environment_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"environment of graphbolt is missing.*make peers PEERS=graphbolt"):
        python_of("graphbolt", tmp_path)


@pytest.mark.parametrize("fails", ["first", "-r", "import json"])
def test_an_environment_is_complete_only_if_every_step_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer, fails: str
) -> None:
    installs = Installs(monkeypatch)
    installs.fails = fails
    assert fails in build("pyg", peer, tmp_path)
    with pytest.raises(SystemExit, match="pyg"):
        python_of("pyg", tmp_path)
    installs.fails = ""
    assert build("pyg", peer, tmp_path) == ""
    assert python_of("pyg", tmp_path) == tmp_path / "pyg" / "bin" / "python"


def test_an_environment_is_built_again_only_if_its_requirements_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer
) -> None:
    installs = Installs(monkeypatch)
    build("pyg", peer, tmp_path)
    first = len(installs.commands)
    build("pyg", peer, tmp_path)
    assert len(installs.commands) == first == 3
    Path(peer.steps[1][1]).write_text("a==2\n")
    installs.fails = "import"
    assert build("pyg", peer, tmp_path)
    assert not (tmp_path / "pyg" / MADE).exists(), "an environment that is half changed is not complete"


def test_a_failed_peer_does_not_keep_the_next_from_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "build", lambda name, _: f"{name}: exit code 1" if name == "pyg" else print(name))
    assert environments.main(["--torch", "torch==2"]) == 1
    shown = capsys.readouterr()
    assert "pyg: exit code 1" in shown.err and "graphbolt" in shown.out


def test_an_unknown_peer_is_refused_before_anything_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        environments.main(["dlg", "--torch", "torch==2"])
    assert "no peer dlg; peers are pyg, graphbolt" in capsys.readouterr().err


def test_every_requirement_is_pinned() -> None:
    files = [
        Path(word)
        for one in peers("torch==2").values()
        for step in one.steps
        for word in step
        if word.endswith(".txt") and "constraints" not in word
    ]
    lines = [line for file in files for line in file.read_text().splitlines() if not line.startswith("#")]
    assert len(files) == 3 and lines and all("==" in line for line in lines)


def test_sides_take_turns_after_one_turn_that_warms_up(scripts: SimpleNamespace) -> None:
    asked: list[str] = []

    def side(name: str) -> SimpleNamespace:
        def ask() -> list[dict[str, int]]:
            asked.append(name)
            return [{"number": len(asked)}]

        return SimpleNamespace(ask=ask, close=lambda: asked.append(f"{name} ends"))

    rows = scripts.ranks.interleave({"gnnexp": side("gnnexp"), "pyg": side("pyg")}, 2)
    assert asked == ["gnnexp", "pyg"] * 3 + ["gnnexp ends", "pyg ends"]
    assert rows[0] == {"gnnexp": [{"number": 3}], "pyg": [{"number": 4}]}


def test_a_ratio_is_the_median_of_the_pairs(scripts: SimpleNamespace) -> None:
    pairs = [(1.0, 2.0), (2.0, 8.0), (1.0, 3.0)]
    rows = [
        {"gnnexp": {"epoch_s": own, "loss": 1.0, "edges": 10}, "pyg": {"seconds": peer, "loss": 1.2, "edges": 30}}
        for own, peer in pairs
    ]
    found = scripts.against_peers.summary(rows)
    assert found["ratio"] == {"pyg": 3.0} and found["interval"] == {"pyg": (2.0, 4.0)}
    assert found["median_s"] == {"gnnexp": 1.0, "pyg": 3.0}
    assert found["edges_per_s"] == {"gnnexp": 10.0, "pyg": 10.0}
    assert found["losses"]["pyg"] == [1.2] * 3


@pytest.mark.parametrize("strange", [2.1, math.nan, math.inf])
def test_a_peer_that_trains_something_else_is_refused(scripts: SimpleNamespace, strange: float) -> None:
    for losses in ({"gnnexp": 1.0, "pyg": strange}, {"pyg": strange, "gnnexp": 1.0}):
        with pytest.raises(SystemExit, match="losses of the last epoch"):
            scripts.against_peers.refuse_strange(losses)
    scripts.against_peers.refuse_strange({"gnnexp": 1.0, "pyg": 1.4})


def test_graphbolt_is_refused_on_a_gpu(scripts: SimpleNamespace) -> None:
    with pytest.raises(SystemExit, match="no CUDA build of DGL"):
        scripts.against_peers.main(["--device", "cuda", "--peers", "pyg", "graphbolt"])
    assert list(scripts.against_peers.peers_on("cuda", None)) == ["pyg"]
    assert list(scripts.against_peers.peers_on("cpu", None)) == ["pyg", "graphbolt"]


def test_without_a_choice_nothing_is_tried(scripts: SimpleNamespace) -> None:
    tried = scripts.against_peers.tune(None, "graphbolt", {}, "layer", "hidden")
    assert scripts.against_peers.best(tried) == {"layout": "edge_index", "num_workers": 0}


def test_layouts_are_tried_before_numbers_of_processes(
    scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = {("edge_index", 0): 3.0, ("sparse", 0): 2.0, ("sparse", 1): 1.0, ("sparse", 2): 4.0}
    place = SimpleNamespace(start=lambda side, config, **chosen: cost[chosen["layout"], chosen["num_workers"]])
    monkeypatch.setattr(
        scripts.against_peers,
        "interleave",
        lambda running, pairs: [{side: [{"seconds": running[side]}] for side in running}] * pairs,
    )
    tried = scripts.against_peers.tune(place, "pyg", {}, "epoch", "all")
    assert [(one["layout"], one["num_workers"]) for one in tried] == list(cost)
    assert scripts.against_peers.best(tried) == {"layout": "sparse", "num_workers": 1}


def test_the_fastest_settings_are_chosen(scripts: SimpleNamespace) -> None:
    tried = [
        {"layout": "edge_index", "num_workers": 0, "seconds": 2.0},
        {"layout": "sparse", "num_workers": 1, "seconds": 1.0},
    ]
    assert scripts.against_peers.best(tried) == {"layout": "sparse", "num_workers": 1}


def test_the_layers_of_a_batch_are_counted_from_its_edges(scripts: SimpleNamespace) -> None:
    # Targets 0, 1. Hop 1 finds 2 and 3; hop 2 finds 4; vertex 3 has no in-edge.
    edges = torch.tensor([[2, 1, 3, 4, 0], [0, 0, 1, 2, 2]])
    assert scripts.driver.hops(edges, 2, 2) == [(5, 4, 5), (3, 2, 4)]
    assert scripts.driver.hops(edges[:, :0], 2, 2) == [(0, 2, 2), (0, 2, 2)]


def test_all_sides_get_the_orders_that_gnnexp_trains_in(scripts: SimpleNamespace, tmp_path: Path) -> None:
    graph = full_graph(300, 3000)
    config = compose(["system=dgl", "train.batch_size=16", "sampler.fanouts=[4,3,2]", "model.layers=3"]).config
    scripts.inputs.write_inputs(tmp_path, graph, config, turns=3, batches=2)
    orders, seeds = (np.load(tmp_path / f"{name}.npy") for name in ("orders", "seeds"))
    assert orders.shape == (3, graph.splits.train.numel()) and seeds.shape == (3, 32)
    assert all(np.array_equal(np.sort(order), np.sort(graph.splits.train)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    hidden, sources = np.load(tmp_path / "hidden_indptr.npy"), np.load(tmp_path / "hidden_sources.npy")
    assert sources.max() < np.load(tmp_path / "hidden_num_src.npy") == len(np.load(tmp_path / "input_indptr.npy")) - 1
    assert np.diff(hidden).max() <= 3


def test_an_epoch_of_a_peer_follows_the_order_and_learns(scripts: SimpleNamespace, tmp_path: Path) -> None:
    orders = np.array([[3, 1, 2, 0], [0, 1, 2, 3]])
    np.save(tmp_path / "orders.npy", orders)
    config = {"optimizer": {"lr": 0.1}}
    request = scripts.driver.Request("epoch", config, "", str(tmp_path))
    net, current = torch.nn.Linear(4, 2), scripts.driver.shared(torch.from_numpy(orders[0]))
    seen: list[list[int]] = []

    def steps() -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        seen.append(current.tolist())
        for batch in current.split(2):
            yield net(torch.eye(4)[batch]), batch % 2, 5

    turn = scripts.driver.epoch_turn(request, net, current, steps)
    answers = [turn(number) for number in range(20)]
    assert seen[:3] == [orders[0].tolist(), orders[1].tolist(), orders[0].tolist()]
    assert answers[0]["edges"] == 10 and answers[-1]["loss"] < answers[0]["loss"] / 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["pyg", "graphbolt"])
@pytest.mark.interpreter
def test_a_peer_measures_everything_at_a_small_scale(name: str, tmp_path: Path) -> None:
    if not (PLACE / name / MADE).is_file():
        pytest.skip(f"no environment of {name}: make peers")
    words = ["--peers", name, "--scale", "0.01", "--steps", "2", "--pairs", "2", "--name", str(tmp_path / "peers")]
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "against_peers.py"), *words], check=True, cwd=tmp_path)
    found = json.loads((tmp_path / "peers.json").read_text())
    assert [row["measure"] for row in found["rows"]] == ["sampling", *["layer"] * 4, *["epoch"] * 3]
    assert all(math.isfinite(row["ratio"][name]) for row in found["rows"])
