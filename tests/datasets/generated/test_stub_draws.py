import numpy as np
import pytest

from gnnexp.datasets.generated import stub_draws
from gnnexp.datasets.generated.degrees import DegreeModel, location, quantiles
from gnnexp.datasets.generated.stub_draws import WeightModel, degrees, stub_edges

V = 200_000


@pytest.mark.parametrize("model", [DegreeModel(20, 1.0, 1000), DegreeModel(8, 2.0, 5000), DegreeModel(5, 0.7, 90, 0.3)])
def test_degrees_follow_the_model(model: DegreeModel) -> None:
    drawn = degrees(model, 7, V)
    assert drawn.dtype == np.int32 and drawn.max() <= model.largest
    assert drawn.mean() == pytest.approx(model.mean, abs=4 * drawn.std() / V**0.5)
    assert (drawn == 0).mean() == pytest.approx(model.zeros, abs=4 * 0.5 / V**0.5)
    expected = quantiles(model, 1000)
    shares = np.array([0.35, 0.5, 0.75, 0.9, 0.99])
    assert np.quantile(drawn, shares) == pytest.approx(expected[(shares * 1000).astype(int)], rel=0.05, abs=1)


def test_draws_depend_on_the_vertex_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DegreeModel(20, 1.0, 1000)
    arguments = (model, WeightModel(1.0, 0.5), (100, 5000), (0.3, 0.7), 5000, 3, (1, 2), None)
    whole, first = degrees(model, 3, 5000), stub_edges(*arguments)
    assert np.array_equal(degrees(model, 3, 700), whole[:700])
    assert not np.array_equal(degrees(model, 4, 5000), whole)
    monkeypatch.setattr(stub_draws, "_CHUNK", 333)
    second = stub_edges(*arguments)
    assert np.array_equal(first.bounds, second.bounds) and first.weights is not None and second.weights is not None
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(np.diff(first.bounds).sum(0), whole), "all levels together have the degree"


def test_levels_have_their_shares() -> None:
    shares = (0.05, 0.6, 0.35)
    edges = stub_edges(DegreeModel(3, 1.0, 100), None, (64, 1000, V), shares, V, 3, (1, 2, 3), None)
    assert edges.bounds[:, -1] / edges.num_edges == pytest.approx(shares, abs=0.005)


@pytest.mark.parametrize("correlation", [-1.0, 0.0, 0.6])
def test_weights_have_their_mean_spread_and_correlation(correlation: float) -> None:
    model = DegreeModel(50, 1.0, 10**6)
    edges = stub_edges(model, WeightModel(1.2, correlation), (V,), (1.0,), V, 3, (1,), None)
    assert edges.weights is not None
    weights = np.diff(edges.weights)
    assert weights.mean() == pytest.approx(1 << 20, rel=0.03)
    assert np.log(weights).std() == pytest.approx(1.2, rel=0.01)
    logs = np.log(np.maximum(np.diff(edges.bounds[0]), 1))
    assert np.corrcoef(logs, np.log(weights))[0, 1] == pytest.approx(correlation, abs=0.02)


def test_other_last_bits_of_a_library_change_no_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DegreeModel(20, 1.3, 5000)
    expected = degrees(model, 7, 50_000)
    exp, cells = np.exp, stub_draws._normal_cells()
    monkeypatch.setattr(np, "exp", lambda values: exp(values) * (1 + 2.0**-52))
    monkeypatch.setattr(stub_draws, "_normal_cells", lambda: cells * (1 - 2.0**-52))
    monkeypatch.setattr(stub_draws, "location", lambda model: location(model) * (1 + 2.0**-50))
    assert np.array_equal(degrees(model, 7, 50_000), expected)
