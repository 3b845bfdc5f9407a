"""Scores of products, against sums over rows that are gathered: values, gradients, and any number of threads."""

from __future__ import annotations

import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnexp.tasks.decoders import products


def drawn(m: int, width: int, pairs: int, relations: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    outputs, weight = (
        torch.randn(n, width, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for n in (m, relations)
    )
    head, tail = (torch.randint(0, m, (pairs,), generator=generator) for _ in range(2))
    return outputs, weight, head, tail, torch.randint(0, relations, (pairs,), generator=generator)


def gathered(outputs: Tensor, head: Tensor, relation: Tensor | None, tail: Tensor, weight: Tensor | None) -> Tensor:
    first = outputs[head]
    if weight is not None:
        first = first * (weight if relation is None else weight[relation])
    return (first * outputs[tail]).sum(1)


def both_ways(score: object, outputs: Tensor, weight: Tensor | None, *pairs: Tensor | None) -> list[Tensor]:
    """Scores and gradients of a sum that weighs every score differently."""
    head, relation, tail = pairs
    scores = score(outputs, head, relation, tail, weight)
    scale = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype)
    wanted = [outputs] if weight is None else [outputs, weight]
    return [scores.detach(), *torch.autograd.grad((scores * scale).sum(), wanted)]


# Ends that are the same vertex are among them (m = 1), no pairs, no columns, and columns beyond whole cache lines.
@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 5),
    st.integers(0, 70),
    st.integers(0, 40),
    st.integers(1, 3),
    st.sampled_from("-1r"),
    st.integers(0, 9),
)
def test_scores_and_gradients_are_those_of_rows(
    m: int, width: int, pairs: int, relations: int, typed: str, seed: int
) -> None:
    outputs, weight, head, tail, relation = drawn(m, width, pairs, relations, torch.float64, seed)
    arguments = (outputs, None if typed == "-" else weight, head, relation if typed == "r" else None, tail)
    for found, expected in zip(both_ways(products, *arguments), both_ways(gathered, *arguments), strict=True):
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("width", [16, 100, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_threads_gives_the_same_bits(width: int, dtype: torch.dtype) -> None:
    outputs, weight, head, tail, relation = drawn(300, width, 4000, 7, dtype)
    before = numba.get_num_threads()
    try:
        results = []
        for threads in {1, numba.config.NUMBA_NUM_THREADS}:
            numba.set_num_threads(threads)
            results.append(both_ways(products, outputs, weight, head, relation, tail))
    finally:
        numba.set_num_threads(before)
    for found in results[1:]:
        assert all(a.equal(b) for a, b in zip(found, results[0], strict=True))
    expected = both_ways(gathered, outputs, weight, head, relation, tail)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    assert all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(results[0], expected, strict=True))


def test_rows_that_are_not_contiguous_and_gradients_that_are_expanded() -> None:
    outputs, _, head, tail, _ = drawn(4, 6, 9, 1, torch.float64)
    columns = outputs[:, ::2]
    (found,) = torch.autograd.grad(products(columns, head, None, tail).sum(), outputs)
    (expected,) = torch.autograd.grad(gathered(columns, head, None, tail, None).sum(), outputs)
    assert torch.allclose(found, expected, rtol=1e-12)
