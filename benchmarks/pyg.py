"""Full-graph epochs of gnnexp and of PyTorch Geometric in turn: one process, two threads, medians of ratios.

PyG runs twice: with `edge_index`, and with a sparse matrix of torch where its layer takes one. Its better time counts.
PyG is that of the development environment, without compiled extensions. `against_peers.py` has PyG with torch-sparse.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from machine import keep
from ranks import Ranks, interleave, slowest
from side_by_side import COMMON, arguments, graph, start

from gnnexp.cli.running.prepare import prepare
from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of

MODELS = {"gcn": ["model=gcn"], "sage": ["model=sage"], "gat": ["model=gat", "model.heads=4"]}
# GAT weighs edges by their ends: PyG has no sparse-matrix way for it.
WAYS = {"gcn": (False, True), "sage": (False, True), "gat": (False,)}
SETTINGS = ["hardware.workers=1", "train=neutrontp", "model.layers=2"]


def compare(shape: str, name: str, scale: float, pairs: int) -> dict[str, Any]:
    """Epochs in turn; the ratio is PyG's seconds / gnnexp's."""
    settings = [*graph(shape, scale), *SETTINGS, *MODELS[name]]
    config = compose([*COMMON, *settings]).config
    folder = prepare(experiment_of(config), Path("runs")).folder
    running = {"gnnexp": start([*settings, "system=neutronstar_comm"])}
    for csr in WAYS[name]:
        running[f"pyg_{'csr' if csr else 'edge_index'}"] = Ranks(
            "pyg_worker.py", config, graph=str(folder), csr=csr, threads=2
        )
    rows = interleave(running, pairs)
    seconds = slowest(rows)
    median = {side: statistics.median(values) for side, values in seconds.items()}
    best = min((side for side in median if side != "gnnexp"), key=lambda side: median[side])
    ratios = [peer / ours for peer, ours in zip(seconds[best], seconds["gnnexp"], strict=True)]
    return {
        "settings": settings,
        "median_s": median,
        "seconds": seconds,
        "best": best,
        "ratio": statistics.median(ratios),
        "losses": {side: rows[-1][side][0]["loss"] for side in running},
    }


def main() -> None:
    parser = arguments(__doc__, "pyg", ("arxiv_like",))
    parser.set_defaults(models=list(MODELS))
    chosen = parser.parse_args()
    found = []
    for shape in chosen.graphs:
        for name in chosen.models:
            found.append(compare(shape, name, chosen.scale, chosen.pairs))
            print(shape, name, f"{found[-1]['ratio']:.2f}", found[-1]["median_s"], found[-1]["losses"], flush=True)
    print(keep(chosen.name, {"pyg": found}))


if __name__ == "__main__":
    main()
