"""The breakdown figure: stacked phases of an epoch, one bar per kind of run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gnnexp.reports.drawing import Part, empty_figure, stack
from gnnexp.reports.table import Group

# Colours of Okabe and Ito's palette: told apart by colour-blind readers, and in grey.
_PARTS = (
    ("S  sample", "sample", "#0072B2"),
    ("N  negatives", "negatives", "#009E73"),
    ("L  load", "load", "#56B4E9"),
    ("FB  forward + backward", "fb", "#E69F00"),
    ("D  decoder, both ways", "decode", "#CC79A7"),
    ("sync", "sync", "#D55E00"),
    ("update", "update", "#999999"),
    ("wait for other ranks", "wait", "#DDDDDD"),
)


def draw_breakdown(groups: Sequence[Group], files: Sequence[Path], title: str = "") -> None:
    """Save stacked S / N / L / FB / D / sync / update / wait bars with the epoch's wall time marked, once per file.

    Bars are means over the ranks: phases are exclusive, so they add up to the wall time (the table has the slowest rank
    of each phase). The files' endings (.png, .svg, .pdf) say what they are.
    """
    shown = [group for group in groups if group.runs]
    figure = empty_figure(max(4.5, 1.6 + 1.3 * len(shown)), 3.8)
    axes = figure.add_subplot()
    positions = list(range(len(shown)))
    seconds = [_seconds(group) for group in shown]
    tops = stack(axes, positions, [Part(label, colour, [of_group[name] for of_group in seconds])
                                   for label, name, colour in _PARTS])
    walls = [group.median("time/epoch_s_mean") for group in shown]
    axes.hlines(walls, [p - 0.36 for p in positions], [p + 0.36 for p in positions], colors="black",
                label="epoch (wall)")
    for position, wall, top in zip(positions, walls, tops, strict=True):
        if not math.isnan(wall):
            axes.annotate(f"{wall:.3g} s", (position, max(wall, top)), (0, 3), textcoords="offset points",
                          ha="center", fontsize=8)
    axes.set_xticks(positions, [group.name for group in shown], fontsize=8)
    axes.set_xlim(-0.6, max(0.6, len(shown) - 0.4))
    axes.set_ylim(0, 1.15 * max([*tops, *(wall for wall in walls if not math.isnan(wall)), 1e-9]))
    axes.set_ylabel("seconds per epoch (median after warm-up)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title:
        axes.set_title(title, fontsize=10)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _seconds(group: Group) -> dict[str, float]:
    """Of every part; 0 where a record does not tell it. The decoder is taken out of FB, which has it."""
    known = {name: group.median(f"time/{name}_s_mean") for _, name, _ in _PARTS}
    seconds = {name: 0.0 if math.isnan(value) else value for name, value in known.items()}
    return {**seconds, "fb": seconds["fb"] - seconds["decode"]}
