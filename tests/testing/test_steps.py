"""Errors of gradients, as the exactness tests take them."""

from __future__ import annotations

import math

import pytest
import torch

from gnnexp.testing.steps import Curve, worst_gradient_error


def _curve(**gradients: list[float]) -> Curve:
    made = {name: torch.tensor(values, dtype=torch.float64) for name, values in gradients.items()}
    return Curve([], made, {}, {}, {})


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ({"a": [2.0, 4.0]}, {"a": [2.0, 4.0]}, 0.0),
        ({"a": [2.0, 5.0]}, {"a": [2.0, 4.0]}, 0.25),
        ({"a": [4.0], "b": [0.002]}, {"a": [4.0], "b": [0.0]}, 0.5),  # the floor: a thousandth of 4
        ({"a": [0.0], "b": [0.0]}, {"a": [0.0], "b": [0.0]}, 0.0),
        ({"a": [1e-30], "b": [0.0]}, {"a": [0.0], "b": [0.0]}, math.inf),
        ({"a": []}, {"a": []}, 0.0),
        ({"a": [1.0], "b": []}, {"a": [2.0], "b": []}, 0.5),
        ({}, {}, 0.0),
    ],
)
def test_the_worst_error_is_relative_to_the_largest_entry(found, expected, error) -> None:
    assert worst_gradient_error(_curve(**found), _curve(**expected)) == error


@pytest.mark.parametrize("place", ["a", "b", "c"])
def test_no_number_is_an_error_wherever_it_is(place) -> None:
    plain = {"a": [1.0], "b": [2.0], "c": [3.0]}
    broken = {**plain, place: [math.nan]}
    for found, expected in ((broken, plain), (plain, broken), (broken, broken)):
        assert not worst_gradient_error(_curve(**found), _curve(**expected)) <= 1e9
