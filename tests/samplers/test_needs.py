"""The memory that a sampler says it needs on a GPU, by formula."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from gnnexp.samplers.fused import FusedOptions

NODES, TOPOLOGY, OCCURRENCE = 101, 5000, 64
BOUNDS = 8 * (NODES + 1)
EDGES = TOPOLOGY - BOUNDS + OCCURRENCE


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("tier", ["auto", "uva"])
def test_a_gpu_has_bounds_a_table_for_each_thread_and_the_edges_unless_they_are_pinned(
    tier: Literal["auto", "uva"], threads: int
) -> None:
    facts: Any = SimpleNamespace(num_nodes=NODES, topology_bytes=TOPOLOGY)
    needs = FusedOptions([5], threads=threads, device="cuda", tier=tier).needs(facts, 0, 2, OCCURRENCE)
    found = {need.place: need.num_bytes for need in needs if need.num_bytes}
    device = 4 * NODES * max(1, threads) + BOUNDS
    assert found == ({"device": device, "host": EDGES} if tier == "uva" else {"device": device + EDGES})
