"""Do our numbers put systems in the published order?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Compared:
    """One system's number and the paper's; lower is better in both.

    Attributes:
        group: what systems are compared within (graph and model).
        system: whose they are.
        ours: NaN where there is none; infinite where it ran out of memory.
        papers: the same of the paper's.
    """

    group: Hashable
    system: str
    ours: float
    papers: float


def pairs_in_order(found: Iterable[Compared]) -> tuple[int, int]:
    """How many pairs of systems of a group are ordered as in the paper, and how many pairs there are.

    Pairs that the paper prints as equal say nothing and are left out, as are those without one of the four numbers.
    """
    groups: dict[Hashable, list[Compared]] = {}
    for one in found:
        if not math.isnan(one.ours) and not math.isnan(one.papers):
            groups.setdefault(one.group, []).append(one)
    pairs = [(a, b) for members in groups.values() for a, b in itertools.combinations(members, 2)
             if a.papers != b.papers]
    return sum((a.ours < b.ours) == (a.papers < b.papers) and a.ours != b.ours for a, b in pairs), len(pairs)
