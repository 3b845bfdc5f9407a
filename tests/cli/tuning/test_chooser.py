"""A search goes on only with the version of Optuna, and the options of its sampler, that began it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.cli.tuning import chooser
from gnnexp.cli.tuning.chooser import note_chooser, was_begun_here
from gnnexp.cli.tuning.definition import Distribution, Tuning
from gnnexp.errors import ConfigError, DataError

TUNING = Tuning((Distribution("optimizer.lr", 0.001, 0.1, log=True),), trials=12)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(monkeypatch, "5.0.0")


def pretend(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(chooser.importlib.metadata, "version", lambda name: {"optuna": version}[name])


def test_a_search_goes_on_with_the_version_that_began_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not was_begun_here("mine", TUNING), "nothing was begun"
    note_chooser("mine", TUNING)
    assert was_begun_here("mine", TUNING)
    (file,) = Path("runs/sweeps/.searches").iterdir()
    assert json.loads(file.read_text()) == {
        "sweep": "mine",
        "optuna": "5.0.0",
        "sampler": "TPESampler(n_startup_trials=5, n_ei_candidates=24, "
        "multivariate=True, group=False, constant_liar=True)",
    }
    pretend(monkeypatch, "4.6.0")
    with pytest.raises(ConfigError, match=r"optuna='4\.6\.0'.*with Optuna 5\.0\.0(.|\n)*optuna==5\.0\.0.*--rerun"):
        was_begun_here("mine", TUNING)
    note_chooser("mine", TUNING)  # --rerun
    assert was_begun_here("mine", TUNING)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"batch": 2},
        {"objective": "time_to_target", "target": 0.9},
        {"pruner": "median"},
        {"distributions": (Distribution("optimizer.lr", 0.001, 0.2, log=True),)},
    ],
)
def test_another_search_may_have_another_version(monkeypatch: pytest.MonkeyPatch, other: dict[str, object]) -> None:
    note_chooser("mine", TUNING)
    pretend(monkeypatch, "4.6.0")
    assert not was_begun_here("mine", replace(TUNING, **other))  # type: ignore[arg-type]
    assert not was_begun_here("other", TUNING)


@pytest.mark.parametrize("longer", [{"trials": 24}, {"seconds": 100.0}])
def test_a_longer_search_is_the_same_one(monkeypatch: pytest.MonkeyPatch, longer: dict[str, object]) -> None:
    note_chooser("mine", TUNING)
    assert was_begun_here("mine", replace(TUNING, **longer))  # type: ignore[arg-type]
    pretend(monkeypatch, "4.6.0")
    with pytest.raises(ConfigError, match="begun with Optuna"):
        was_begun_here("mine", replace(TUNING, **longer))  # type: ignore[arg-type]


def test_other_options_of_the_sampler_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    note_chooser("mine", TUNING)
    monkeypatch.setattr(chooser, "OPTIONS", {**chooser.OPTIONS, "multivariate": False})
    with pytest.raises(ConfigError, match=r"multivariate=False(.|\n)*begun with .*multivariate=True"):
        was_begun_here("mine", TUNING)


@pytest.mark.parametrize("content", ["", "[]", '{"optuna": "5.0.0"}', "\udcff"])
def test_a_damaged_note_is_named(content: str) -> None:
    note_chooser("mine", TUNING)
    (file,) = Path("runs/sweeps/.searches").iterdir()
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(DataError, match="must say which Optuna began the search"):
        was_begun_here("mine", TUNING)
