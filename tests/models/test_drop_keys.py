"""On a GPU keys of masks are memory that a step overwrites: what has been captured draws the next step's masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from emulated_gpu import counting, is_wanted
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.layer import Degrees
from gnnexp.models.model import Model
from gnnexp.models.sage import SAGEOptions
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.testing.graphs import nasty_graph

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]
CPU, STEPS = torch.device("cpu"), [BatchKey(1, 0, 0), BatchKey(1, 0, 1), BatchKey(1, 7, 1)]
Mask = Callable[[Backend, Drop, torch.device], Tensor]


def _rows(backend: Backend, drop: Drop, device: torch.device) -> Tensor:
    return backend.rows.dropout(torch.ones(40, 6, device=device), torch.arange(40, device=device), drop, 9, 2)


def _relu(backend: Backend, drop: Drop, device: torch.device) -> Tensor:
    return backend.rows.relu_dropout(torch.ones(40, 6, device=device), torch.arange(40, device=device), drop, 6)


def _edges(backend: Backend, drop: Drop, device: torch.device) -> Tensor:
    block = Block(torch.arange(0, 81, 2), torch.arange(80, dtype=torch.int32) % 41, torch.arange(41), 40).to(device)
    return backend.edges.dropout(block, torch.ones(80, 5, device=device), drop)


def _sparse(backend: Backend, drop: Drop, device: torch.device) -> Tensor:
    rows = SparseRows(torch.arange(0, 81, 2), torch.arange(80, dtype=torch.int32) % 9, torch.ones(80), 9).on(device)
    return backend.rows.sparse_dropout(rows, torch.arange(40, device=device), drop).values


def _model(device: torch.device) -> Model:
    model = SAGEOptions(hidden=8, layers=3, dropout=0.4).make()
    model.setup(5, 4, Degrees.of(nasty_graph()), seed=0, dtype=torch.float32, device=device)
    return model


def _drop(model: Model, purpose: Purpose, key: BatchKey) -> Drop:
    drop = model.drop(purpose, 1, 0.4, key)
    assert drop is not None
    return drop


@pytest.mark.parametrize("purpose", [Purpose.DROPOUT, Purpose.ATTENTION_DROPOUT])
@pytest.mark.parametrize("mask", [_rows, _relu, _edges, _sparse])
def test_what_is_captured_in_one_step_draws_the_masks_of_the_next(mask: Mask, purpose: Purpose) -> None:
    here, there = _model(CPU), _model(torch.device("cuda"))
    assert there.backend is not None
    captured = _drop(there, purpose, STEPS[0])
    expected = [mask(numba_backend(), _drop(here, purpose, key), CPU) for key in STEPS]
    assert not torch.equal(expected[0], expected[1]) and not torch.equal(expected[1], expected[2])
    for key, wanted in zip(STEPS, expected, strict=True):
        _drop(there, purpose, key)
        assert torch.equal(mask(there.backend, captured, torch.device("cuda")).cpu(), wanted)


def test_micro_batches_of_a_step_keep_their_own_masks() -> None:
    """Push-pull parallelism works on the blocks of all ranks in one step."""
    here, there = _model(CPU), _model(torch.device("cuda"))
    assert there.backend is not None
    keys = [replace(STEPS[0], micro=micro) for micro in range(3)]
    drops = [_drop(there, Purpose.DROPOUT, key) for key in keys]
    for key, drop in zip(keys, drops, strict=True):
        expected = _rows(numba_backend(), _drop(here, Purpose.DROPOUT, key), CPU)
        assert torch.equal(_rows(there.backend, drop, torch.device("cuda")).cpu(), expected)


@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu counts")
def test_a_step_brings_its_keys_in_one_copy_without_a_wait() -> None:
    model = _model(torch.device("cuda"))
    for key in STEPS:
        with counting() as counts:
            for layer in range(3):
                for purpose in (Purpose.DROPOUT, Purpose.ATTENTION_DROPOUT):
                    model.drop(purpose, layer, 0.5, key)
        assert (counts.totals["h2d_copies"], counts.totals["h2d_bytes"]) == (1, 2 * 3 * 8)
        assert (counts.totals["waits"], counts.totals["pageable_h2d_bytes"]) == (0, 0)
    torch.cuda.synchronize()


def test_kernels_of_the_cpu_take_numbers() -> None:
    drop = _drop(_model(CPU), Purpose.DROPOUT, STEPS[0])
    assert drop.word is None and isinstance(drop.key, int)
