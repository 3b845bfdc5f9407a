"""A calibration as a YAML file that Hydra reads as numbers, and where a rank's rows go in an uneven exchange."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.components.schema import HardwareConfig
from gnnexp.planning.figures import LINKS, UNITS, figures_of, profile_text
from gnnexp.planning.probes import uneven


def test_medians_and_quartiles_over_the_repetitions_of_all_ranks() -> None:
    (flops, latency) = figures_of(
        [{"flops": [1.0, 2.0, 3.0], "latency": [5.0, 5.0]}, {"flops": [4.0, 5.0, 6.0], "latency": [5.0, 5.0]}]
    )
    assert (flops.name, flops.median, flops.low, flops.high, flops.repetitions) == ("flops", 3.5, 2.25, 4.75, 3)
    assert flops.spread == pytest.approx(2.5 / 3.5) and latency.spread == 0


@pytest.mark.parametrize("value", [7e10, 1.0, 123456789.0, 2.5e-5])
def test_numbers_are_numbers_in_yaml(value: float) -> None:
    figures = figures_of([{name: [value, value] for name in UNITS}])
    text = profile_text(HardwareConfig(workers=4), figures, 'a "machine": this, 2026', "gnnexp x")
    told = yaml.safe_load(text)
    names = set(UNITS) - set(LINKS)
    assert all(told[name] == pytest.approx(value, rel=1e-3) and isinstance(told[name], float) for name in names)
    assert told["links"] == {name: pytest.approx(value, rel=1e-3) for name in LINKS}
    # Neither was chosen: whoever uses the profile may.
    assert told["workers"] == 4 and "threads" not in told and "device" not in told
    assert told["source"] == 'a "machine": this, 2026' and told["defaults"] == ["local", "_self_"]


def test_links_that_nobody_measured_are_null_or_left_out() -> None:
    text = profile_text(HardwareConfig(), figures_of([{"h2d": [1.0, 1.0]}]), "here", "gnnexp x")
    assert yaml.safe_load(text)["links"] == {"h2d": 1.0, "d2d": None, "network": None}


@given(st.integers(0, 10_000), st.integers(2, 9))
def test_uneven_shares_add_up_and_none_is_for_oneself(num_rows: int, size: int) -> None:
    for rank in range(size):
        shares = uneven(num_rows, rank, size)
        assert sum(shares) == num_rows and shares[rank] == 0 and min(shares) >= 0
        assert shares[(rank + 1) % size] == max(shares)
