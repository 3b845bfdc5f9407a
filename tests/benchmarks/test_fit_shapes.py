"""The fits of shapes: the table in the repository is right, and wrong input is refused."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from benchmarks import fit_shapes
from gnnexp.errors import ConfigError, DataError


def test_the_table_has_the_best_fits_and_what_the_formulas_give() -> None:
    fit_shapes.check(fit_shapes.RESULTS.read_text())


@pytest.mark.parametrize(("old", "new"), [("sigma=1.181", "sigma=1.25"), ("1.181,", "1.181,"), (",1.009,", ",1.019,")])
def test_a_changed_table_is_noticed(old: str, new: str) -> None:
    lines = [line for line in fit_shapes.RESULTS.read_text().splitlines() if "," in line][:2]
    text = "\n".join(lines).replace(old, new)
    if old == new:
        fit_shapes.check(text)
        return
    with pytest.raises(DataError, match="orkut='sigma="):
        fit_shapes.check(text)


def test_a_worse_fit_is_noticed() -> None:
    target = fit_shapes.read("orkut")
    ratios = fit_shapes.counts_of(target, {"sigma": 1.5}, 4096) / target.counts
    header, values = ["graph", "batch", "parameters", "fitted_counts", *fit_shapes.NAMES], [f"{r:.3f}" for r in ratios]
    row = ["orkut", "4096", "sigma=1.5", "; ".join(fit_shapes.NAMES), *values]
    with pytest.raises(DataError, match="is better"):
        fit_shapes.check(",".join(header) + "\n" + ",".join(row))


def test_residuals_are_within_the_bounds_that_claims_rest_on() -> None:
    bounds = {"orkut": 0.05, "friendster": 0.10, "papers100m": 0.15}
    rows = list(csv.DictReader(fit_shapes.RESULTS.read_text().splitlines()))
    for graph, bound in bounds.items():
        errors = [
            float(row["largest_error"])
            for row in rows
            if (row["graph"], row["batch"]) == (graph, "4096")
            and tuple(word.split("=")[0] for word in row["parameters"].split()) == fit_shapes.CHOSEN[graph]
        ]
        assert len(errors) == 5 and max(errors) < bound  # the fit, and those without each count


def test_counts_that_a_paper_does_not_print_are_refused() -> None:
    with fit_shapes.PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert fit_shapes.published_count(rows, "friendster", "micro", "features_loaded") == 11.4e9
    with pytest.raises(DataError, match="prints 0 values"):
        fit_shapes.published_count(rows, "reddit", "mini", "edges_computed")
    with pytest.raises(DataError, match="prints 2 values"):
        fit_shapes.published_count(rows + rows, "orkut", "mini", "edges_computed")


def test_degrees_that_no_graph_has_are_refused() -> None:
    target = fit_shapes.read("orkut")
    impossible = fit_shapes.Target({**target.statistics, "largest": 70}, target.counts)
    with pytest.raises(ConfigError, match="largest"):
        fit_shapes.counts_of(impossible, {"sigma": 1.0}, 4096)


def test_a_fit_finds_the_parameter_that_made_the_counts() -> None:
    target = fit_shapes.read("orkut")
    made = fit_shapes.Target(target.statistics, fit_shapes.counts_of(target, {"sigma": 0.9}, 4096))
    assert fit_shapes.fit("orkut", made, 4096, ("sigma",)).parameters["sigma"] == pytest.approx(0.9, abs=0.002)
    assert np.allclose(fit_shapes.fit("orkut", made, 4096, ("sigma",), ("mini edges",)).ratios, 1, atol=0.005)
