"""Slices of all ranks side by side are the rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest
import torch
from exchanging import CPU
from experiments import setting_and_facts, setting_in
from hypothesis import given, settings
from hypothesis import strategies as st
from store_cases import as_dense, graph_of, reads_of, shard_of

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.feature_stores.sliced import SlicedOptions, slice_bounds
from gnnexp.graph.sparse import SparseRows
from gnnexp.measure.phases import PhaseTimer


@settings(max_examples=60)
@given(st.integers(0, 500), st.integers(1, 40))
def test_slices_cover_every_dimension_once_and_are_even(num_dims: int, num_slices: int) -> None:
    bounds = slice_bounds(num_dims, num_slices)
    widths = [stop - start for start, stop in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(widths)) == (0, num_dims, num_slices)
    assert min(widths) >= 0 and max(widths) - min(widths) <= 1


def _slice(
    num_features: int,
    sparse: bool,
    tier: Literal["host", "device"] = "host",
) -> tuple[list[torch.Tensor], dict[str, int], int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    graph = graph_of(sparse=sparse, num_features=num_features)
    store = SlicedOptions(tier).make()
    store.setup(shard_of(graph, comm.rank, comm.size), torch.float64, CPU, comm)
    assert not store.is_collective and comm.ledger.take() == {}
    rows = [store.read(ids) for ids in reads_of(7, graph.num_nodes)]
    width = store.dims.stop - store.dims.start
    assert all(isinstance(found, SparseRows) == sparse and found.shape[1] == width for found in rows)
    return [as_dense(found) for found in rows], store.take_counts(), store.nbytes()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("num_features", [1, 2, 5, 13])
def test_slices_side_by_side_are_the_rows(ranks, num_features, sparse):
    graph = graph_of(sparse=sparse, num_features=num_features)
    assert graph.features is not None
    whole = as_dense(graph.features).double()
    for size, results in ((1, [_slice(num_features, sparse)]), (3, ranks(3).run(_slice, num_features, sparse))):
        for number, ids in enumerate(reads_of(7, 60)):
            joined = torch.cat([rows[number] for rows, _, _ in results], 1)
            assert torch.equal(joined, whole[ids.long()])
        widths = [rows[0].shape[1] for rows, _, _ in results]
        assert sum(widths) == num_features
        assert max(widths) - min(widths) <= 1
        if num_features < size:
            assert 0 in widths
        total = sum(ids.numel() for ids in reads_of(7, 60))
        assert all(counts["features_loaded_host"] == total for _, counts, _ in results)
        if not sparse:
            assert sum(held for _, _, held in results) == 60 * num_features * 8


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_slice_on_the_device_brings_nothing_from_the_host(ranks, sparse):
    for on_host, on_device in zip(
        ranks(3).run(_slice, 13, sparse), ranks(3).run(_slice, 13, sparse, "device"), strict=True
    ):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(on_host[0], on_device[0], strict=True))
        total = sum(ids.numel() for ids in reads_of(7, 60))
        assert on_device[1] == {"features_loaded_local": total, "tier/h2d_bytes": 0} and on_device[2] == on_host[2]


def test_a_slice_that_does_not_fit_the_device_is_refused() -> None:
    pytest.importorskip("hydra")
    from gnnexp.config.compose import compose

    graph = graph_of(sparse=False, num_features=13)
    config = compose(["system=p3", "hardware.workers=4"]).config
    needed = graph.num_nodes * 13 * 4 // 4
    for memory, wrong in ((needed, 0), (needed - 1, 1), (None, 0)):
        config["hardware"]["device_memory"] = memory
        assert len(SlicedOptions("device").check_data(*setting_and_facts(config, graph))) == wrong
        assert SlicedOptions("host").check_data(*setting_and_facts(config, graph)) == []
    assert SlicedOptions("gpu").check(setting_in(config))[0].key == "feature_store.tier"
