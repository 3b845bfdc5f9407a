"""Maps of vertices are kept from batch to batch, and say where their entries end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.pool import Pool
from gnnexp.samplers.layerwise import MappedRelabelling, Neighbours
from gnnexp.samplers.split import Frontier
from gnnexp.samplers.vertex_map import VertexMap, VertexMaps

V = 12


def new_map(base: int = 1) -> VertexMap:
    return VertexMap(np.zeros(V, np.int32), np.empty(0, np.int32), base)


def relabelled(base: int) -> None:
    found = Neighbours(torch.tensor([0, 4, 6]), torch.tensor([3, 4, 5, 6, 7, 3], dtype=torch.int32))
    MappedRelabelling(torch.tensor([0, 1], dtype=torch.int32), new_map(base)).block(found, BlockNeeds())


def taken_in(base: int) -> None:
    frontier = Frontier(torch.tensor([0, 1], dtype=torch.int32), new_map(base), Pool())
    frontier.take_in(*frontier.second_loop(np.empty(6, np.int32)).run(np.array([3, 4, 5, 6, 7, 3], np.int32)))


def joined(base: int) -> None:
    frontier = Frontier(torch.tensor([0, 1], dtype=torch.int32), new_map(base), Pool())
    frontier.join(np.array([3, 4, 5, 6, 7], np.int32))


@pytest.mark.parametrize("work", [relabelled, taken_in, joined])
def test_entries_beyond_32_bits_are_refused(work: Callable[[int], None]) -> None:
    work((1 << 30) + 1)
    with pytest.raises(ValueError, match="use smaller batches"):
        work((1 << 31) - 7)


def test_entries_of_earlier_batches_are_forgotten_before_the_base_grows_too_large() -> None:
    maps = VertexMaps(new_map)
    with maps.lent() as lent:
        lent.table[:3] = (1 << 30) + 7, -1 - (1 << 30), -1
        lent.base = (1 << 30) + 8
    with maps.lent() as again:
        assert again is lent and again.base == 1
        assert again.table[:4].tolist() == [0, -1, -1, 0], "the sign is kept"


def test_a_map_of_a_batch_that_failed_is_not_lent_again() -> None:
    maps = VertexMaps(new_map)
    with pytest.raises(KeyError), maps.lent() as lent:
        raise KeyError("in the middle")
    with maps.lent() as other:
        assert other is not lent
