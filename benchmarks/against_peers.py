"""gnnexp against the peers of today: PyG with torch-sparse, and DGL's GraphBolt (`make peers` builds both).

Three measures: sampling (fan-outs 15, 10, 5 of the model), one layer forward and backward on sampled blocks, an epoch.
Every side has a process of its own that lives through all pairs, with the same graph, targets, order of batches,
threads and memory settings. Sides take turns. A ratio is the median over pairs of peer seconds / gnnexp seconds.
A peer's loader runs with its best number of processes, and PyG with its better layout of edges: both are tried before.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from machine import keep
from peers.environments import python_of
from peers.inputs import write_inputs
from ranks import Ranks, interleave
from versions import interval

from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build
from gnnexp.files.cache import cache_root
from gnnexp.preparation.artifacts import prepare_graph

PEERS = ("pyg", "graphbolt")
LAYOUTS = {"pyg": ("edge_index", "sparse"), "graphbolt": ("edge_index",)}  # GraphBolt has one
WORKERS = (0, 1, 2)
MODELS = {
    "sage": ["model=sage", "model.dropout=0.5"],
    "sage_no_dropout": ["model=sage", "model.dropout=0.0"],
    "gat": ["model=gat", "model.heads=4", "model.dropout=0.0", "model.self_loops=false"],
}
MEASURES = ("sampling", "layer", "epoch")
_VERSIONS = """
import json
from importlib.metadata import distributions
found = {one.metadata["Name"].lower().replace("-", "_"): one.version for one in distributions()}
print(json.dumps({name: found[name] for name in PACKAGES if name in found}))
""".replace("PACKAGES", str(("torch", "torch_geometric", "torch_sparse", "torch_scatter", "dgl", "torchdata", "numpy")))
# Losses of an epoch differ by initial parameters and draws. By more than this factor, sides train different things.
NEAR = 2.0


@dataclass(frozen=True)
class Place:
    """Where all sides find their inputs, and what they run on.

    Attributes:
        graph: folder of the graph.
        inputs: folder that `write_inputs` wrote.
        peers: interpreter of each peer.
        device: `cpu` or `cuda`.
        pairs: number of turns of every side, after one that warms up.
    """

    graph: Path
    inputs: Path
    peers: Mapping[str, Path]
    device: str
    pairs: int

    def start(self, side: str, config: dict[str, Any], **request: Any) -> Ranks:  # noqa: ANN401
        """One side of a measurement."""
        if side == "gnnexp" and request["measure"] == "epoch":
            return Ranks("epoch_worker.py", config, graph=str(self.graph))
        return Ranks(
            f"peers/{side}_driver.py",
            config,
            python=self.peers.get(side),
            graph=str(self.graph),
            inputs=str(self.inputs),
            device=self.device,
            **request,
        )


def compare(place: Place, config: dict[str, Any], measure: str, block: str = "hidden") -> dict[str, Any]:
    """All sides in turn, each peer with its best settings."""
    tuned = {side: tune(place, side, config, measure, block) for side in place.peers}
    running = {"gnnexp": place.start("gnnexp", config, measure=measure, block=block)}
    running |= {
        side: place.start(side, config, measure=measure, block=block, **best(tried)) for side, tried in tuned.items()
    }
    rows = [{side: answers[0] for side, answers in row.items()} for row in interleave(running, place.pairs)]
    return {"measure": measure, **summary(rows), "tried": tuned}


def tune(place: Place, side: str, config: dict[str, Any], measure: str, block: str) -> list[dict[str, Any]]:
    """Seconds of a turn with each setting of a peer: first its layouts, then numbers of processes in the best layout.

    A turn is the better of two, after one that warms up. If there is no choice, nothing is run.
    """
    layouts = LAYOUTS[side] if measure != "sampling" else LAYOUTS[side][:1]
    workers = WORKERS if measure != "layer" else WORKERS[:1]
    if len(layouts) == len(workers) == 1:
        return [{"layout": layouts[0], "num_workers": workers[0], "seconds": None}]
    tried: list[dict[str, Any]] = []

    def attempt(layout: str, num_workers: int) -> None:
        chosen = {"layout": layout, "num_workers": num_workers}
        rows = interleave({side: place.start(side, config, measure=measure, block=block, **chosen)}, 2)
        tried.append({**chosen, "seconds": min(row[side][0]["seconds"] for row in rows)})

    for layout in layouts:
        attempt(layout, workers[0])
    layout = best(tried)["layout"]
    for num_workers in workers[1:]:
        attempt(layout, num_workers)
    return tried


def best(tried: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fastest settings."""
    fastest = min(tried, key=itemgetter("seconds"))
    return {key: value for key, value in fastest.items() if key != "seconds"}


def summary(rows: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Medians of all sides, ratios of the peers with their intervals, edges per second, losses.

    Raises:
        SystemExit: the losses of two sides are not of the same size.
    """
    seconds = {side: [_seconds(row[side]) for row in rows] for side in rows[0]}
    ratios = {
        side: [peer / own for peer, own in zip(values, seconds["gnnexp"], strict=True)]
        for side, values in seconds.items()
        if side != "gnnexp"
    }
    found: dict[str, Any] = {
        "median_s": {side: statistics.median(values) for side, values in seconds.items()},
        "ratio": {side: statistics.median(values) for side, values in ratios.items()},
        "interval": {side: interval(values) for side, values in ratios.items()},
        "seconds": seconds,
    }
    if "edges" in rows[0]["gnnexp"]:
        found["edges_per_s"] = {
            side: statistics.median(row[side]["edges"] / _seconds(row[side]) for row in rows) for side in seconds
        }
    if "loss" in rows[0]["gnnexp"]:
        found["losses"] = {side: [row[side]["loss"] for row in rows] for side in seconds}
        refuse_strange({side: losses[-1] for side, losses in found["losses"].items()})
    return found


def refuse_strange(losses: Mapping[str, float]) -> None:
    """Compare the losses of the last epoch.

    Raises:
        SystemExit: they are not of the same size, or not numbers.
    """
    values = list(losses.values())
    if not all(map(math.isfinite, values)) or max(values) > NEAR * min(values):
        raise SystemExit(f"the losses of the last epoch differ by more than {NEAR:g} times: {losses}")


def _seconds(answer: Mapping[str, float]) -> float:
    return answer["seconds"] if "seconds" in answer else answer["epoch_s"]


def peers_on(device: str, names: Sequence[str] | None) -> Sequence[str]:
    """The peers to measure against: those asked for, or all that the device allows.

    Raises:
        SystemExit: GraphBolt is asked for on a GPU.
    """
    if device == "cuda" and "graphbolt" in (names or ()):
        raise SystemExit("GraphBolt runs on CPU only: the package index has no CUDA build of DGL; --peers pyg")
    return names or (PEERS if device == "cpu" else ("pyg",))


def settings(scale: float, steps: int, device: str) -> list[str]:
    """Overrides of all sides: the training of DGL's example on a graph like ogbn-products."""
    return [
        "system=dgl",
        "dataset=dcsbm",
        "dataset.shape=products_like",
        f"dataset.scale={scale}",
        f"dataset.train={1024 * steps / (2_449_029 * scale):.8f}",
        "sampler.fanouts=[15,10,5]",
        "model.hidden=256",
        "model.layers=3",
        "train.batch_size=1024",
        "hardware.workers=1",
        f"hardware.device={device}",
        "tracker=none",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write the JSON."""
    chosen = _arguments().parse_args(argv)
    pythons = {name: python_of(name) for name in peers_on(chosen.device, chosen.peers)}
    common = settings(chosen.scale, chosen.steps, chosen.device)
    configs = {name: compose([*common, *MODELS[name]]).config for name in MODELS}
    graph, folder = prepare_graph(build(configs["sage"]["dataset"], Dataset), cache_root())
    found = []
    with tempfile.TemporaryDirectory() as inputs:
        write_inputs(Path(inputs), graph, configs["sage"], turns=chosen.pairs + 1, batches=2 * chosen.steps)
        place = Place(folder, Path(inputs), pythons, chosen.device, chosen.pairs)
        for measure, model, block in _cases(chosen.measures, chosen.models):
            row = {"model": model, "block": block, **compare(place, configs[model], measure, block)}
            found.append(row)
            print(
                measure,
                model,
                block,
                *(f"{side} {ratio:.2f}x" for side, ratio in row["ratio"].items()),
                row["median_s"],
                {side: best(tried) for side, tried in row["tried"].items()},
                flush=True,
            )
            kept = keep(
                chosen.name, {"settings": common, "device": chosen.device, "versions": versions(pythons), "rows": found}
            )  # after every row, so a run that is stopped loses one row
    print(kept)


def versions(pythons: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Versions of the packages that count, in each peer's environment."""
    return {
        name: json.loads(
            subprocess.run([python, "-c", _VERSIONS], check=True, text=True, stdout=subprocess.PIPE).stdout
        )
        for name, python in pythons.items()
    }


def _cases(measures: Sequence[str], models: Sequence[str]) -> list[tuple[str, str, str]]:
    """Measure, model, block. Sampling has no model, and a layer has no dropout."""
    layers = [("layer", model, block) for model in models if model in ("sage", "gat") for block in ("input", "hidden")]
    cases = [("sampling", "sage", "all"), *layers, *(("epoch", model, "all") for model in models)]
    return [case for case in cases if case[0] in measures]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="both by default; on a GPU pyg")
    parser.add_argument("--measures", nargs="*", default=list(MEASURES), choices=MEASURES)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12, help="batches of an epoch; sampling takes twice as many")
    parser.add_argument("--scale", type=float, default=1.0, help="of ogbn-products' size")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--name", default="peers", help="of the file in benchmarks/results")
    return parser


if __name__ == "__main__":
    main()
