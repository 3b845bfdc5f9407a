"""Arithmetic over records: the names mean what they say, and nothing but arithmetic is let in."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import evaluate, expression_problems, names_in

EPOCHS = [
    {"time/epoch_s": 9.0, "acc/val": 0.1, "comm/rounds_gradients": 4.0},
    {"time/epoch_s": 2.0, "acc/val": 0.4},
    {"time/epoch_s": 4.0, "comm/rounds_gradients": 4.0},
]
RUN = RecordedRun(
    Path("x"),
    {"model": {"layers": 3}, "hardware": {"nodes": 2, "workers": 3}},
    {"graph": {"num_nodes": 50}},
    EPOCHS,
    {"acc/test": 0.5},
    "finished",
    facts={"chunks": 7},
    quality={"seconds": 8},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[time/epoch_s]", 3.0),
        ("[time/epoch_s] / 2 + 1", 2.5),
        ("100 * (1 - [time/epoch_s] / [quality/seconds])", 62.5),
        ("[summary/acc/test]", 0.5),
        ("[last/acc/val]", 0.4),
        ("[sum/time/epoch_s]", 15.0),
        ("[epochs/1/acc/val]", 0.1),
        ("[config/model.layers]", 3.0),
        ("[graph/num_nodes]", 50.0),
        ("[paradigm/chunks]", 7.0),
        ("[ranks]", 6.0),
        ("[batches]", 4.0),
        ("[comm/bytes_frontier]", 0.0),
        ("max([ranks], 7) - min([ranks], 7)", 1.0),
        ("-[ranks]", -6.0),
        ("1 / ([ranks] - [time/epoch_s] - 2)", 1.0),
        ("1 / ([ranks] - [time/epoch_s])", 1 / 3),
    ],
)
def test_names(text: str, value: float) -> None:
    assert expression_problems(text, "here") == []
    assert evaluate(text, RUN) == value


@pytest.mark.parametrize(
    "text",
    [
        "[nothing]",
        "[summary/nothing]",
        "[config/nothing]",
        "[epochs/9/acc/val]",
        "[last/nothing]",
        "[ranks] / [comm/bytes_frontier]",
    ],
)
def test_what_nobody_recorded_is_nan(text: str) -> None:
    assert math.isnan(evaluate(text, RUN))


@pytest.mark.parametrize(
    ("vertices", "edges", "copies", "known"),
    [(2.0, 2.0, 1.5, True), (2.1, 1.0, 1.5, False), (1.0, 2.1, 1.5, False), (1.0, 2.1, 2.0, True)],
)
def test_collapsed_partitions_are_left_out(vertices: float, edges: float, copies: float, known: bool) -> None:
    """Of a vertex-cut (copies by its edges and with one home differ) edges must be balanced too."""
    quality = {"replication_full": 2.0, "replication_cut": copies, "balance_vertices": vertices, "balance_edges": edges}
    value = evaluate("[quality/replication_full] * [comparable]", replace(RUN, quality=quality))
    assert value == 2.0 if known else math.isnan(value)
    assert math.isnan(evaluate("[comparable]", replace(RUN, quality={})))


def test_known_values_come_first() -> None:
    assert evaluate("[time/epoch_s] + [ranks]", RUN, {"time/epoch_s": 1.0}) == 7.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time/epoch_s",
        "[a] +",
        "__import__('os')",
        "[a].real",
        "[a] ** [a]",
        "'x'",
        "(lambda: 1)()",
        "[a] if [a] else 1",
        "v0",
        "max([a], key=1)",
        "[a]; [a]",
    ],
)
def test_nothing_else_is_let_in(text: str) -> None:
    assert len(expression_problems(text, "here")) == 1


@given(st.lists(st.sampled_from(["a", "time/x_s", "b.c"]), min_size=1, max_size=15))
def test_each_name_is_its_own(names: list[str]) -> None:
    text = " + ".join(f"[{name}]" for name in names)
    assert names_in(text) == names
    known = {"a": 1.0, "time/x_s": 100.0, "b.c": 10000.0}
    assert evaluate(text, RUN, known) == sum(known[name] for name in names)
