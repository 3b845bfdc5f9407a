"""The number of chunks of a graph: given, or as few as a device-memory budget allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import rule_problems
from gnnexp.errors import DataError, Problem
from gnnexp.graph.block import Block
from gnnexp.placement.chunks import Chunk, ChunkCost, cut, even_ranges, ranges_in_budget

ResidentMemory = int | Literal["fit"] | None


@dataclass(frozen=True)
class Chunking:
    """The options `paradigm.chunks`, `paradigm.device_memory` and `paradigm.resident_memory`.

    Attributes:
        count: number of ranges of destinations, with about equally many edges each; None: the budget decides.
        budget: bytes of the device tier that a chunk may take; None for no limit.
        resident: bytes of the device in which chunks stay (`loops/stay.py`); `fit`: what `hardware.device_memory`
            leaves; None: every visit copies its chunk.
    """

    count: int | None
    budget: int | None
    resident: ResidentMemory = None

    def problems(self) -> list[Problem]:
        """Invalid options."""
        count, budget, resident = self.count, self.budget, self.resident
        return rule_problems(
            (
                resident in (None, "fit") or (isinstance(resident, int) and resident >= 0),
                "resident_memory",
                resident,
                "must be a number of bytes, fit, or null",
                "set paradigm.resident_memory=null",
            ),
            (
                count is None or count >= 1,
                "chunks",
                count,
                "must be at least 1, or null with a device_memory",
                "set paradigm.chunks=1",
            ),
            (
                budget is None or budget >= 1,
                "device_memory",
                budget,
                "must be a positive number of bytes, or null",
                "set paradigm.device_memory=null",
            ),
            (
                count is not None or budget is not None,
                "chunks",
                None,
                "null needs paradigm.device_memory",
                "set paradigm.chunks=1",
            ),
            (
                count in (None, 1) or budget is None,
                "chunks",
                count,
                "a budget decides how many chunks there are",
                "set paradigm.chunks=null, or paradigm.device_memory=null",
            ),
        )

    def whole_problems(self) -> list[Problem]:
        """Problems of paradigms in which a single chunk is on the device in any case."""
        return rule_problems(
            (
                self.resident is None or self.count != 1,
                "resident_memory",
                self.resident,
                "needs chunks that visit the device: with chunks=1 all of the graph is there",
                "set paradigm.resident_memory=null, or paradigm.chunks=<number>",
            )
        )

    def data_problems(self, facts: GraphFacts, costs: Iterable[ChunkCost], self_loops: bool) -> list[Problem]:
        """Problems with the data: a budget that is too small for the largest vertex with its in-edges."""
        if self.budget is None:
            return []
        largest = facts.top_degrees[0] + self_loops if facts.num_nodes else 0
        sources = min(facts.num_nodes, largest + 1)
        needed = max(cost.per_dst + largest * cost.per_edge + sources * cost.per_src for cost in costs)
        if needed <= self.budget:
            return []
        return [
            Problem(
                "paradigm.device_memory",
                self.budget,
                f"the largest vertex has {largest} in-edges: a chunk of it alone takes {needed} bytes",
                f"set paradigm.device_memory={needed} or more",
            )
        ]

    def chunks(self, block: Block, cost: ChunkCost | None) -> tuple[Chunk, ...]:
        """The chunks of `block`. Its destinations are its first sources. A budget needs a `cost`.

        Raises:
            DataError: if a single destination needs more than the budget.
        """
        if self.budget is None:
            assert self.count is not None
            return cut(block, even_ranges(block, self.count))
        assert cost is not None, "a budget needs layers of known cost"
        bounds, dearest = ranges_in_budget(block, cost, self.budget)
        if dearest > self.budget:
            raise DataError(
                Problem(
                    "paradigm.device_memory",
                    self.budget,
                    f"a single vertex takes {dearest} bytes",
                    f"set paradigm.device_memory={dearest} or more",
                )
            )
        return cut(block, bounds)


UNCUT = Chunking(1, None)
