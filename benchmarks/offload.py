"""Offloaded epochs compared with those in memory: the four systems of HongTu in turn, medians, ratios.

Two ranks, 8 chunks each. The device tier is emulated: a copy to the device is a copy in RAM, and an exchange goes
through sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from machine import keep
from side_by_side import MODELS, arguments, compare, graph, ratio

SYSTEMS = ("hongtu_im", "hongtu_base", "hongtu_p2p", "hongtu")
# Graphs, and the width of the hidden layers on each.
WIDTHS = {"arxiv_like": 128, "reddit_like": 256, "papers_like": 128}
TARGET = 1.5


def epochs(pairs: int, scale: float, graphs: Sequence[str], models: Sequence[str]) -> list[dict[str, Any]]:
    """All systems on every graph with every model."""
    found = []
    for shape in graphs:
        for name in models:
            settings = [*graph(shape, scale), "hardware.workers=2", "hardware.threads=1"]
            systems = {
                system: [f"system={system}", *MODELS[name], f"model.hidden={WIDTHS[shape]}"] for system in SYSTEMS
            }
            result = compare(settings, systems, pairs)
            result |= {
                "of_in_memory": ratio(result, "hongtu", "hongtu_im"),
                "target": TARGET,
                "of_base": ratio(result, "hongtu", "hongtu_base"),
            }
            print(
                f"{shape} {name}: hongtu {result['of_in_memory']:.2f}x of hongtu_im (wanted <= {TARGET}), "
                f"{result['of_base']:.2f}x of hongtu_base (wanted < 1) {result['median_s']}",
                flush=True,
            )
            found.append(result)
    return found


def main() -> None:
    chosen = arguments(__doc__, "offload", WIDTHS).parse_args()
    print(keep(chosen.name, {"epochs": epochs(chosen.pairs, chosen.scale, chosen.graphs, chosen.models)}))


if __name__ == "__main__":
    main()
