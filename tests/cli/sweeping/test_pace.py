"""A sweep says how long the rest will take, as soon as a case has ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.pace import Pace, in_units, pace_kind, time_left
from gnnexp.config.compose import compose
from gnnexp.experiment.build import experiment_of

SWEEP = """fixed: [dataset=digits, tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0, 1, 2]}
report: {figures: []}
"""


def test_cases_take_as_long_as_those_of_their_kind() -> None:
    ended = [
        ("a on 1x1/x", 10.0),
        ("a on 1x1/x", 12.0),
        ("a on 1x1/x", 50.0),
        ("a on 1x1/y", 20.0),
        ("b on 1x2/z", 100.0),
    ]
    pace = Pace(ended)
    assert pace.expected_s("a on 1x1/x") == 12.0, "the median: the first may have compiled"
    assert pace.expected_s("a on 1x1/new") == 16.0, "of the same data and ranks"
    assert pace.expected_s("c on 1x1/new") == 20.0, "of all"
    assert pace.left_s(["a on 1x1/x", "b on 1x2/z"]) == 112.0
    assert pace.left_s([], [("b on 1x2/z", 30.0), ("a on 1x1/x", 99.0)]) == 70.0, "what runs is counted in part"
    assert Pace([]).left_s(["a"]) is None and Pace([]).words(["a"]) == ""


def test_several_at_a_time_share_the_rest_but_no_case_is_shorter() -> None:
    pace = Pace([("a on 1x1/x", 10.0), ("b on 1x1/y", 100.0)], at_once=2)
    assert pace.left_s(["a on 1x1/x"] * 4) == 20.0
    assert pace.left_s(["a on 1x1/x", "b on 1x1/y"]) == 100.0


def test_a_kind_is_all_but_the_seed() -> None:
    def kind(*overrides: str) -> str:
        return pace_kind(experiment_of(compose(["dataset=digits", *overrides]).config))

    assert kind() == kind("seed=7") != kind("model.hidden=9")
    assert (
        kind().partition("/")[0]
        == kind("model.hidden=9").partition("/")[0]
        != kind("hardware.workers=2").partition("/")[0]
    )


def test_a_duration_has_its_end() -> None:
    assert time_left(None) == ""
    assert re.fullmatch(r"about 100 s left, until (\w{3} )?\d\d:\d\d", time_left(100.0))
    assert re.fullmatch(r"about 48.0 h left, until \w{3} \d\d:\d\d", time_left(48 * 3600.0))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (100_000, "27.8 h")],
)
def test_units(seconds: float, words: str) -> None:
    assert in_units(seconds) == words


@pytest.mark.parametrize(("jobs", "known"), [((), [False, True, True]), (("--jobs", "2"), [False, False, True])])
def test_each_case_but_the_first_ones_says_it(
    jobs: tuple[str, ...],
    known: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))
    (tmp_path / "mine.yaml").write_text(SWEEP)
    assert run_command(["sweep", "mine.yaml", *jobs]) == 0
    begun = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\d/3 ", line)]
    assert [
        bool(re.search(r"\(about [\d.]+ (s|min|h) left, until (\w{3} )?\d\d:\d\d\)$", line)) for line in begun
    ] == known, begun
