"""Classes that a configuration can name and that have moved: their old names stay good, and keys keep the first ones.

A recorded configuration names a class as it was called then. It is found under its name of today. Keys of runs and of
artifacts are made with the first name, so that a move makes no finished run new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# First name -> name of today.
MOVED: Mapping[str, str] = {
    "gnnexp.datasets.dcsbm.Dcsbm": "gnnexp.datasets.generated.dcsbm.Dcsbm",
    "gnnexp.datasets.rmat.Rmat": "gnnexp.datasets.generated.rmat.Rmat",
    "gnnexp.partitioners.dbh.DbhPartitioner": "gnnexp.partitioners.streams.dbh.DbhPartitioner",
    "gnnexp.partitioners.greedy.GreedyPartitioner": "gnnexp.partitioners.streams.greedy.GreedyPartitioner",
    "gnnexp.partitioners.hdrf.HdrfPartitioner": "gnnexp.partitioners.streams.hdrf.HdrfPartitioner",
    "gnnexp.partitioners.libra.LibraPartitioner": "gnnexp.partitioners.streams.libra.LibraPartitioner",
    "gnnexp.partitioners.restream.RestreamPartitioner": "gnnexp.partitioners.streams.restream.RestreamPartitioner",
    "gnnexp.partitioners.spring.SpringPartitioner": "gnnexp.partitioners.streams.spring.SpringPartitioner",
    "gnnexp.partitioners.two_ps_l.TwoPsLPartitioner": "gnnexp.partitioners.streams.two_ps_l.TwoPsLPartitioner",
}


def name_today(name: str) -> str:
    """The dotted name under which a class is found today."""
    return MOVED.get(name, name)


def first_name(name: str) -> str:
    """The dotted name that a class had first."""
    return next((first for first, today in MOVED.items() if today == name), name)


def with_first_names(node: object) -> Any:  # noqa: ANN401  as it came
    """A configuration, or a value of it, whose every `_target_` has its first name."""
    if isinstance(node, Mapping):
        return {key: first_name(value) if key == "_target_" and isinstance(value, str) else with_first_names(value)
                for key, value in node.items()}
    return [with_first_names(value) for value in node] if isinstance(node, (list, tuple)) else node
