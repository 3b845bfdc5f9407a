"""Counts add up, within a session and over sessions in a file; the page shows what the file has."""

from __future__ import annotations

import json

import pytest

from torture.counts import Counts, Failure, Session, add_session, from_json, read_sessions, total
from torture.page import COUNTS, END, NOTHING, PAGE, START, filled, tables

FAILURE = Failure("kills", "epochs [0, 0] <b>|</b>", 7, "python -m torture kills --seed 7")


def session(seed: int, *failures: Failure, **numbers: int) -> Session:
    return Session("2026-11-24T20:00:00+00:00", 3600.0, "here", "0123456789abcdef", seed, Counts(numbers, failures))


def test_counts_add_up():
    found = Counts({"kills": 2, "orphans": 0}) + Counts({"kills": 3, "frozen": 1}, (FAILURE,))
    assert found == Counts({"frozen": 1, "kills": 5, "orphans": 0}, (FAILURE,))
    assert from_json(json.loads(json.dumps(found.to_json()))) == found
    assert Counts() + found == found


def test_sessions_add_up_in_a_file(tmp_path):
    file = tmp_path / "torture.json"
    assert read_sessions(file) == []
    for seed in (1, 2):
        add_session(file, session(seed, *[FAILURE] * (seed - 1), kills=10 * seed, runs=seed))
    assert [one.seed for one in read_sessions(file)] == [1, 2]
    assert total(read_sessions(file)) == Counts({"kills": 30, "runs": 3}, (FAILURE,))
    assert json.loads(file.read_text())["total"]["numbers"] == {"kills": 30, "runs": 3}
    assert [path.name for path in file.parent.iterdir()] == ["torture.json"]


def test_a_total_that_is_not_the_sum_is_refused(tmp_path):
    file = tmp_path / "torture.json"
    add_session(file, session(1, kills=10))
    file.write_text(file.read_text().replace('"kills": 10', '"kills": 1000', 1))
    with pytest.raises(ValueError, match="not the sum"):
        read_sessions(file)


def test_the_page_shows_the_file():
    """`python -m torture.page` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, read_sessions(COUNTS)) == text


def test_tables_have_numbers_and_failures():
    assert tables([]) == NOTHING
    inputs = Session("2026-11-24", 0.0, "here", "0", 6, Counts({"fuzz/a/inputs": 1000, "fuzz/b/inputs": 7}))
    shown = tables([session(5, FAILURE, kills_compared=1234, syncs=3), session(6, kills_compared=1), inputs])
    for words in (
        "malformed inputs | 1,007 |",
        "3 sessions, 2.0 hours",
        "compared | 1,235 |",
        "| `syncs` | 3 |",
        "| failures | 1 |",
        FAILURE.how,
    ):
        assert words in shown, words
    assert "<b>" not in shown and "\\|" in shown
    assert filled(f"a{START}x{END}b", []) == f"a{START}\n\n{NOTHING}\n\n{END}b"
