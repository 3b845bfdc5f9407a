import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.datasets.generated.degrees import DegreeModel, location, problems, quantiles
from gnnexp.errors import ConfigError

ORKUT = DegreeModel(mean=76.28, sigma=1.2, largest=33_313)


@pytest.mark.parametrize(
    "model",
    [
        ORKUT,
        DegreeModel(mean=55.06, sigma=2.2, largest=5214),
        DegreeModel(mean=14.55, sigma=1.15, largest=251_471, zeros=0.35),
        DegreeModel(mean=1.001, sigma=3.0, largest=100),
        DegreeModel(mean=99.9, sigma=0.1, largest=100),
    ],
)
def test_mean_of_the_quantiles_is_the_mean_of_the_model(model: DegreeModel) -> None:
    degrees = quantiles(model, 400_000)
    assert degrees.mean() == pytest.approx(model.mean, rel=2e-3)
    assert (degrees == 0).mean() == pytest.approx(model.zeros, abs=1e-5)
    assert (np.diff(degrees) >= 0).all() and degrees.max() <= model.largest * (1 + 1e-12)
    assert degrees[degrees > 0].min() >= 1


def test_without_cuts_the_mean_is_that_of_a_log_normal_distribution() -> None:
    model = DegreeModel(mean=1e4, sigma=0.5, largest=2**31 - 1)
    assert location(model) == pytest.approx(math.log(1e4) - 0.125, rel=1e-12)
    assert quantiles(model, 3)[1] == pytest.approx(math.exp(location(model)))


@settings(max_examples=60, deadline=None)
@given(
    sigma=st.floats(0.01, 10),
    largest=st.integers(2, 2**31 - 1),
    zeros=st.floats(0, 0.99),
    place=st.floats(0.001, 0.999),
)
def test_every_possible_mean_has_a_location(sigma: float, largest: int, zeros: float, place: float) -> None:
    mean = (1 - zeros) * math.exp(place * math.log(largest))
    model = DegreeModel(mean=mean, sigma=sigma, largest=largest, zeros=zeros)
    higher = replace(model, mean=min(mean * 1.01, (1 - zeros) * largest * 0.9999))
    assert problems(model) == []
    if higher.mean > mean:
        assert location(model) < location(higher)
        assert (quantiles(model, 99) <= quantiles(higher, 99) + 1e-9).all()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"mean": 40_000.0}, ["mean"]),
        ({"mean": 1.0}, ["mean"]),
        ({"mean": 33_313.0}, ["mean"]),
        ({"mean": 20_000.0, "zeros": 0.5}, ["mean"]),
        ({"mean": float("nan")}, ["mean"]),
        ({"mean": float("inf")}, ["mean"]),
        ({"sigma": 0.0, "zeros": 1.0}, ["sigma", "zeros"]),
        ({"sigma": float("nan"), "largest": 1}, ["sigma", "largest"]),
        ({"sigma": -1.0, "mean": -3.0, "zeros": -0.1, "largest": 2**31}, ["mean", "sigma", "largest", "zeros"]),
    ],
)
def test_degrees_that_no_graph_has_are_refused_with_all_problems(changes: dict[str, float], names: list[str]) -> None:
    model = replace(ORKUT, **changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        location(model)
    assert [problem.key for problem in caught.value.problems] == [f"degrees.{name}" for name in names]
    assert [problem.key for problem in problems(model, "dataset")] == [f"dataset.{name}" for name in names]
