"""Full-graph epochs side by side: interleaved pairs, medians, ratios.

- `alone`: one rank with two threads against DGL's full-graph loop (`dgl_full_graph`), GCN and GAT;
- `two`: two ranks, `neutrontp` against `neutronstar_comm`, with this machine's loopback and behind an emulated 15 Gbps
  link; how much of the exchange time pipelining hides;
- `ablation`: two ranks, the systems of NeutronTP's Figure 11 in turn, behind the emulated link.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from machine import keep
from side_by_side import MODELS, arguments, compare, graph, ratio

GRAPHS = ("arxiv_like", "reddit_like")
# The share of dgl_full_graph's time that an epoch may take, by model.
TARGETS = {"gcn": 0.8, "gat": 0.4}
# The share of neutronstar_comm's time, by hardware profile.
LINKS = {"local_measured": 0.6, "emulated_15gbps": 0.4}
ABLATION = ("neutrontp_base", "neutrontp_cs", "neutrontp_cs_tp", "neutrontp_cs_tp_dt", "neutrontp")


def alone(pairs: int, scale: float, graphs: Sequence[str], models: Sequence[str]) -> list[dict[str, Any]]:
    """Against DGL."""
    found = []
    for shape in graphs:
        for name in models:
            target = TARGETS[name]
            settings = [*graph(shape, scale), "hardware.workers=1", "train=neutrontp"]
            systems = {"dgl_full_graph": ["system=dgl_full_graph"], "ours": ["system=neutronstar_comm"]}
            result = compare(settings, {key: [*value, *MODELS[name]] for key, value in systems.items()}, pairs)
            result |= {"ratio": ratio(result, "ours", "dgl_full_graph"), "target": target}
            print(
                f"{shape} {name}: {result['ratio']:.2f}x of dgl_full_graph (wanted <= {target}) {result['median_s']}",
                flush=True,
            )
            found.append(result)
    return found


def two(pairs: int, scale: float) -> list[dict[str, Any]]:
    """Tensor against vertex parallelism."""
    found = []
    for profile, target in LINKS.items():
        settings = [*graph("reddit_like", scale), f"hardware={profile}", "hardware.workers=2"]
        systems = {name: [f"system={name}"] for name in ("neutronstar_comm", "neutrontp")}
        result = compare(settings, systems, pairs)
        result |= {"ratio": ratio(result, "neutrontp", "neutronstar_comm"), "target": target}
        print(
            f"neutrontp, {profile}: {result['ratio']:.2f}x of neutronstar_comm (wanted <= {target}), "
            f"hidden {result['hidden_share']['neutrontp']:.0%} of its exchanges (wanted >= 50 % behind the link) "
            f"{result['median_s']}",
            flush=True,
        )
        found.append(result)
    return found


def ablation(pairs: int, scale: float) -> dict[str, Any]:
    """Figure 11: each step's gain over the one before; CS against the baseline, TP against baseline + CS, and so on."""
    settings = [*graph("reddit_like", scale), "hardware=emulated_15gbps", "hardware.workers=2"]
    result = compare(settings, {name: [f"system={name}"] for name in ABLATION}, pairs)
    result["gain"] = {b: ratio(result, a, b) for a, b in pairwise(ABLATION)}
    print(
        "ablation, each against the one before:",
        {name: f"{gain:.2f}x" for name, gain in result["gain"].items()},
        result["median_s"],
        flush=True,
    )
    return result


def main() -> None:
    parser = arguments(__doc__, "full_graph", GRAPHS)
    parser.add_argument("--only", nargs="*", default=["alone", "two", "ablation"])
    chosen = parser.parse_args()
    result: dict[str, Any] = {}
    if "alone" in chosen.only:
        result["alone"] = alone(chosen.pairs, chosen.scale, chosen.graphs, chosen.models)
    if "two" in chosen.only:
        result["two"] = two(chosen.pairs, chosen.scale)
    if "ablation" in chosen.only:
        result["ablation"] = ablation(chosen.pairs, chosen.scale)
    print(keep(chosen.name, result))


if __name__ == "__main__":
    main()
