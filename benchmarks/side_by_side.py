"""Full-graph systems side by side: epochs in turn, on graphs and partitions that are prepared before."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranks import Ranks, interleave, slowest

from gnnexp.cli.running.prepare import prepare
from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of

COMMON = ("tracker=none", "hardware.device=cpu", "preflight=off")
# How much of each shape's published size is taken at `--scale 1`.
SHARES = {"arxiv_like": 1.0, "reddit_like": 0.25, "papers_like": 0.004}
MODELS = {"gcn": ["model=gcn"], "gat": ["model=gat", "model.heads=4"]}


def arguments(description: str | None, name: str, graphs: Iterable[str]) -> argparse.ArgumentParser:
    """The arguments of these benchmarks. By default, they run all of `graphs` and of `MODELS`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the scale of every graph")
    parser.add_argument("--graphs", nargs="*", default=list(graphs))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--name", default=name)
    return parser


def compare(settings: Sequence[str], systems: Mapping[str, Sequence[str]], pairs: int) -> dict[str, Any]:
    """Epochs of all systems in turn, the first epoch of each apart; seconds of the slowest rank."""
    running = {name: start([*settings, *overrides]) for name, overrides in systems.items()}
    rows = interleave(running, pairs)
    seconds = slowest(rows)
    return {
        "settings": list(settings),
        "systems": {name: list(overrides) for name, overrides in systems.items()},
        "median_s": {name: statistics.median(values) for name, values in seconds.items()},
        "seconds": seconds,
        "phases": {name: rows[-1][name][0]["phases"] for name in running},
        "crossings": {name: rows[-1][name][0]["crossings"] for name in running},
        "hidden_share": {name: hidden_share([rank for row in rows for rank in row[name]]) for name in running},
        "losses": {name: [row[name][0]["loss"] for row in rows] for name in running},
    }


def hidden_share(answers: Sequence[Mapping[str, Any]]) -> float | None:
    """Of the time in exchanges of vertex data, what passed while the loop computed; median over ranks and epochs."""
    shares = [answer["hidden"].get("comm", 0.0) / answer["exchange_s"] for answer in answers if answer["exchange_s"]]
    return statistics.median(shares) if shares else None


def ratio(result: Mapping[str, Any], numerator: str, denominator: str) -> float:
    """Median over pairs."""
    seconds: dict[str, list[float]] = result["seconds"]
    return statistics.median(a / b for a, b in zip(seconds[numerator], seconds[denominator], strict=True))


def start(overrides: Sequence[str]) -> Ranks:
    """The ranks of a configuration, on a graph, a partition and parts that are prepared before."""
    config = compose([*COMMON, *overrides]).config
    made = prepare(experiment_of(config), Path("runs"))
    artifacts = {"graph": made.folder, "partition": made.partition, "parts": made.parts, "frequency": made.presample}
    given: dict[str, Any] = {name: str(path) for name, path in artifacts.items() if path}
    return Ranks("epoch_worker.py", config, **given)


def graph(shape: str, scale: float) -> list[str]:
    """The dataset's settings: the usual share of a shape, times `scale`."""
    return ["dataset=dcsbm", f"dataset.shape={shape}", f"dataset.scale={SHARES[shape] * scale}"]
