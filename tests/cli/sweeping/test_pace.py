"""A sweep says how long the rest will take, as soon as a case has ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.pace import Pace, in_units

SWEEP = """fixed: [dataset=digits, tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0, 1, 2]}
report: {figures: []}
"""


def test_cases_take_as_long_as_those_before() -> None:
    assert Pace(0, 50.0).left_s(7) is None and Pace(0, 50.0).words(7) == ""
    assert Pace(2, 50.0).left_s(4) == 100.0
    assert Pace(2, 50.0).words(4) == "about 100 s left"


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
    assert [bool(re.search(r"\(about [\d.]+ (s|min|h) left\)$", line)) for line in begun] == known, begun
