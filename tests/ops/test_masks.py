"""Masks follow all that sets a batch and a layer apart, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.block import BatchKey
from gnnexp.kernels.counter import Purpose
from gnnexp.models.layer import Degrees
from gnnexp.models.sage import SAGEOptions
from gnnexp.ops.backend import Drop
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backend_torch import torch_backend
from gnnexp.testing.graphs import nasty_graph

KEY = BatchKey(seed=1, epoch=2, step=3, micro=4)


def _mask(key: BatchKey, purpose: Purpose = Purpose.DROPOUT, layer: int = 1) -> torch.Tensor:
    model = SAGEOptions(hidden=8, layers=3, dropout=0.4).make()
    model.setup(5, 4, Degrees.of(nasty_graph()), seed=0, dtype=torch.float32, device=torch.device("cpu"))
    drop = model.drop(purpose, layer, 0.4, key)
    assert drop is not None
    return numba_backend().rows.dropout(torch.ones(40, 6), torch.arange(40), drop, 9, 2)


def test_a_mask_is_drawn_from_seed_epoch_step_micro_batch_layer_and_purpose() -> None:
    masks = {name: _mask(replace(KEY, **{name: getattr(KEY, name) + 1})) for name in ("seed", "epoch", "step", "micro")}
    masks |= {"layer": _mask(KEY, layer=2), "purpose": _mask(KEY, Purpose.ATTENTION_DROPOUT), "none": _mask(KEY)}
    assert torch.equal(masks["none"], _mask(KEY))
    names = list(masks)
    same = [
        (one, other)
        for place, one in enumerate(names)
        for other in names[:place]
        if torch.equal(masks[one], masks[other])
    ]
    assert same == []


@given(
    st.integers(1, 40).flatmap(
        lambda width: st.tuples(
            st.just(width),
            st.integers(0, width).flatmap(lambda first: st.tuples(st.just(first), st.integers(0, width - first))),
        )
    ),
    st.integers(0, (1 << 64) - 1),
    st.lists(st.integers(0, (1 << 62)), max_size=5),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_masks_of_slices_of_columns_are_those_of_numba(
    columns: tuple[int, tuple[int, int]], key: int, ids: list[int], p: float
) -> None:
    num_columns, (first, width) = columns
    drop, rows, names = Drop(p, key), torch.ones(len(ids), width), torch.tensor(ids, dtype=torch.int64)
    found = torch_backend().rows.dropout(rows, names, drop, num_columns, first)
    assert torch.equal(found, numba_backend().rows.dropout(rows, names, drop, num_columns, first))
