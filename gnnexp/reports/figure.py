"""The breakdown figure: stacked phases of an epoch, one bar per kind of run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gnnexp.reports.table import Group

# Colours of Okabe and Ito's palette: told apart by colour-blind readers, and in grey.
_PARTS = (
    ("S  sample", "time/sample_s_mean", "#0072B2"),
    ("L  load", "time/load_s_mean", "#56B4E9"),
    ("FB  forward + backward", "time/fb_s_mean", "#E69F00"),
    ("sync", "time/sync_s_mean", "#D55E00"),
    ("update", "time/update_s_mean", "#999999"),
    ("wait for other ranks", "time/wait_s_mean", "#DDDDDD"),
)


def draw_breakdown(groups: Sequence[Group], files: Sequence[Path], title: str = "") -> None:
    """Save stacked S / L / FB / sync / update / wait bars with the epoch's wall time marked, once per file.

    Bars are means over the ranks: phases are exclusive, so they add up to the wall time (the table has the slowest rank
    of each phase). The files' endings (.png, .svg, .pdf) say what they are.
    """
    from matplotlib.figure import Figure

    shown = [group for group in groups if group.runs]
    figure = Figure(figsize=(max(4.5, 1.6 + 1.3 * len(shown)), 3.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    positions = list(range(len(shown)))
    bottoms = [0.0] * len(shown)
    for label, metric, colour in _PARTS:
        heights = [0.0 if math.isnan(value := group.median(metric)) else value for group in shown]
        axes.bar(positions, heights, 0.6, bottoms, label=label, color=colour)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    walls = [group.median("time/epoch_s_mean") for group in shown]
    axes.hlines(walls, [p - 0.36 for p in positions], [p + 0.36 for p in positions], colors="black",
                label="epoch (wall)")
    for position, wall, bottom in zip(positions, walls, bottoms, strict=True):
        if not math.isnan(wall):
            axes.annotate(f"{wall:.3g} s", (position, max(wall, bottom)), (0, 3), textcoords="offset points",
                          ha="center", fontsize=8)
    axes.set_xticks(positions, [group.name for group in shown])
    axes.set_xlim(-0.6, max(0.6, len(shown) - 0.4))
    axes.set_ylim(0, 1.15 * max([*bottoms, *(wall for wall in walls if not math.isnan(wall)), 1e-9]))
    axes.set_ylabel("seconds per epoch (median after warm-up)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title:
        axes.set_title(title, fontsize=10)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
