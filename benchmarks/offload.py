"""Offloaded epochs beside those in memory: the four systems of HongTu in turn, medians, ratios.

Two ranks, 8 chunks each. The device tier is emulated: a crossing is a copy in RAM, an exchange goes through sockets.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from machine import keep
from side_by_side import compare, graph, ratio

SYSTEMS = ("hongtu_im", "hongtu_base", "hongtu_p2p", "hongtu")
GRAPHS: dict[str, tuple[float, list[str]]] = {
    "arxiv_like": (1.0, ["model.hidden=128"]), "reddit_like": (0.25, ["model.hidden=256"]),
    "papers_like": (0.004, ["model.hidden=128"]),
}
MODELS = {"gcn": ["model=gcn"], "gat": ["model=gat", "model.heads=4"]}
TARGET = 1.5


def epochs(pairs: int, scale: float, graphs: Sequence[str], models: Sequence[str]) -> list[dict[str, Any]]:
    """All systems on every graph with every model."""
    found = []
    for shape in graphs:
        share, sizes = GRAPHS[shape]
        for name in models:
            settings = [*graph(shape, share * scale), "hardware.workers=2", "hardware.threads=1"]
            systems = {system: [f"system={system}", *MODELS[name], *sizes] for system in SYSTEMS}
            result = compare(settings, systems, pairs)
            result |= {"of_in_memory": ratio(result, "hongtu", "hongtu_im"), "target": TARGET,
                       "of_base": ratio(result, "hongtu", "hongtu_base")}
            print(f"{shape} {name}: hongtu {result['of_in_memory']:.2f}x of hongtu_im (wanted <= {TARGET}), "
                  f"{result['of_base']:.2f}x of hongtu_base (wanted < 1) {result['median_s']}", flush=True)
            found.append(result)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of all graphs, beside their own")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--name", default="offload")
    chosen = parser.parse_args()
    print(keep(chosen.name, {"epochs": epochs(chosen.pairs, chosen.scale, chosen.graphs, chosen.models)}))


if __name__ == "__main__":
    main()
