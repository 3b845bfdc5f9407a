"""What a case of the matrix chooses: one value of each axis."""

from __future__ import annotations

from pathlib import Path

from gnnexp.testing.ways import WAYS

_SYSTEMS = Path(__file__).parents[3] / "conf" / "system"

# A way of training is an exact one by its name, or a preset: `system=…`. The first value of an axis is the plain one.
AXES: dict[str, tuple[str, ...]] = {
    "way": (*WAYS, *(f"system={path.stem}" for path in sorted(_SYSTEMS.glob("*.yaml")))),
    "model": ("sage", "gcn", "gin", "gat", "rgcn"),
    "task": ("vertices", "links"),
    "rows": ("dense", "sparse", "trained"),
    "edges": ("plain", "weighted"),
    # Of vertices or edges over ranks: `idle` parts have vertices, but only the first one has training targets.
    "parts": ("random", "skewed", "empty", "idle"),
    # All targets in one step; several steps in an epoch; fewer targets in a step than ranks.
    "batches": ("whole", "several", "tiny"),
    "stopped": ("never", "once"),
    "kernel": ("auto", "torch", "dgl"),
    "overlap": ("off", "on"),
    "ranks": ("1", "2", "3", "4"),
    "device": ("cpu", "cuda"),
}

Case = tuple[str, ...]
Pair = tuple[tuple[str, str], tuple[str, str]]


def named(case: Case) -> dict[str, str]:
    """A case's values by axis."""
    return dict(zip(AXES, case, strict=True))


def name_of(case: Case) -> str:
    """A short name: the way, and what is not plain."""
    way, *rest = case
    plain = [values[0] for values in AXES.values()][1:]
    return "-".join(
        [
            way.replace("system=", "system_"),
            *(
                f"{value}r" if value.isdigit() else value
                for value, usual in zip(rest, plain, strict=True)
                if value != usual
            ),
        ]
    )
