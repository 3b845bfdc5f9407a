"""Sums of several threads; what a thread keeps apart counts when it is added, and only then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gnnexp.measure.ledger import Counts, Ledger, Traffic


def test_sums_start_afresh_when_they_are_taken():
    counts = Counts()
    counts.add({"rows": 2, "edges": 1})
    counts.add({"rows": 3})
    assert counts.take() == {"rows": 5, "edges": 1}
    assert counts.take() == {}


def test_what_threads_keep_apart_counts_when_it_is_added():
    counts = Counts()

    def prepare(number: int) -> dict[str, int]:
        with counts.apart() as own:
            for _ in range(1000):
                counts.add({"rows": number})
        counts.add({"threads": 1})
        return own

    with ThreadPoolExecutor(4) as pool:
        prepared = list(pool.map(prepare, range(8)))
    assert prepared == [{"rows": 1000 * number} for number in range(8)]
    counts.add(prepared[3])  # the others are thrown away
    assert counts.take() == {"rows": 3000, "threads": 8}


def test_a_thread_counts_as_before_after_an_error():
    ledger = Ledger()
    with pytest.raises(ValueError, match="here"), ledger.apart():
        ledger.add({"features": Traffic(8, 1, 0.5)})
        raise ValueError("here")
    ledger.add({"features": Traffic(4, 1, 0.25)})
    ledger.add({"features": Traffic(seconds=0.25)})
    assert ledger.take() == {"features": Traffic(4, 1, 0.5)}
