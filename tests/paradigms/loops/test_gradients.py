"""Ranks that begin with different parameters are found; gradients of nothing are nothing."""

from __future__ import annotations

import pytest
import torch
from exchanging import connect

from gnnexp.paradigms.loops.gradients import FlatGradients, assert_same_parameters


def _begin(change: str) -> str:
    comm = connect()
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.arange(parameter.numel()).view_as(parameter) + 1)
        if comm.rank == 1 and change == "sign":
            module.weight.neg_()
        if comm.rank == 1 and change == "order":
            module.weight.copy_(module.weight.flip(0))
    try:
        assert_same_parameters(module, comm)
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("change", ["", "sign", "order"])
def test_ranks_begin_with_the_same_parameters(ranks, change: str) -> None:
    """Sums of magnitudes would see neither of both."""
    found = ranks(2).run(_begin, change)
    assert all(("different initial parameters" in message) == bool(change) for message in found)


def test_there_may_be_no_parameters_at_all() -> None:
    flat = FlatGradients([], None, torch.float64, torch.device("cpu"))
    flat.forget()
    assert flat.flat.numel() == 0 and flat.flat.dtype == torch.float64
