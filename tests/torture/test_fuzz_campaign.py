"""The fuzzers' kinds of inputs, and what a campaign counts of them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from torture.fuzz import campaign, guided
from torture.fuzz.campaign import KINDS, fuzz, reproduce
from torture.fuzz.case import Case
from torture.fuzz.kinds import records
from torture.fuzz.runner import FAILED, FINE, Outcome, run_cases

# Cases of these take a tenth of a second or more.
SLOW = ("overrides", "configs", "records")
QUICK = ("slurm_output",)  # of the others: `make torture-slice` makes inputs of every kind


SCRIPT = """
import json, sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from torture.fuzz.campaign import KINDS
from torture.fuzz.runner import run_cases, seeds_of
folder, counts = Path(sys.argv[1]) / "cases", json.loads(sys.argv[2])
print(json.dumps({name: [asdict(one) for one in run_cases(
    name, KINDS[name], islice(seeds_of(name, 0), count), 250.0, folder)] for name, count in counts.items()}))
"""
COUNT, FEW, DATASETS = 60, 30, 100


def outcomes(counts: dict[str, int], folder: Path) -> dict[str, list[Outcome]]:
    """In an interpreter of its own: kernels cannot run in a fork of one in which kernels have run."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), json.dumps(counts)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(campaign.__file__).parents[2],
    )
    return {name: [Outcome(**one) for one in found] for name, found in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    """Of the kinds that `make test` runs, in one interpreter."""
    return outcomes({**dict.fromkeys(QUICK, FEW), "datasets": DATASETS}, tmp_path_factory.mktemp("quick"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KINDS]
)
@pytest.mark.interpreter
def test_every_kind_makes_inputs_that_are_read_and_that_are_refused(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ended = request.getfixturevalue("quick") if name in QUICK else outcomes({name: COUNT}, tmp_path)
    found = [one.name for one in ended[name]]
    assert len(found) == (FEW if name in QUICK else COUNT)
    assert "refused" in found or name == "slurm_output"  # nothing that SLURM says is an error of the user's
    assert "accepted" in found or name in SLOW


@pytest.mark.interpreter
def test_damaged_data_sets_do_nothing_but_be_refused(quick: dict[str, list[Outcome]]) -> None:
    found = quick["datasets"]
    assert len(found) == DATASETS
    assert [one for one in found if one.name in FAILED] == []
    assert sum(one.name == "refused" for one in found) > DATASETS / 2


def test_counts_add_up_and_follow_from_the_seed(tmp_path: Path) -> None:
    counts = fuzz(1.0, 5, tmp_path, ["checkpoints"])
    inputs = counts.numbers["fuzz/checkpoints/inputs"]
    assert inputs >= 1
    assert sum(counts.numbers[f"fuzz/checkpoints/{word}"] for word in (*FINE, *FAILED)) == inputs
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", (*records.QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in records.SLOW)), ids=" ".join
)
def test_the_record_that_is_damaged_is_one_that_commands_take(arguments: list[str], tmp_path: Path) -> None:
    """Or else the fuzzer would only see how an outdated record is refused."""

    def kind(random: Random) -> Case:
        return Case("whole", records.whole(), lambda: records.run(arguments))

    found = list(run_cases("records", kind, iter([0]), 100.0, tmp_path / "cases"))
    expected = "refused" if arguments[0] == "cancel" else "accepted"  # the run has ended
    assert [(one.name, one.text) for one in found] == [(expected, "")]


def planted(random: Random) -> Case:
    number = random.random()

    def read() -> None:
        if number > 0.2:
            raise KeyError("planted")

    return Case("planted", {}, read)


def test_failures_name_the_command_that_shows_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "KINDS", {"archives": planted})
    counts = campaign._counted(
        "archives", run_cases("archives", planted, iter(range(40)), 200.0, tmp_path / "cases"), Counter()
    )
    assert counts.numbers["fuzz/archives/traceback"] > 3 == len(counts.failures)
    failure = counts.failures[0]
    assert failure.how == f"python -m torture fuzz --kind archives --seed {failure.seed}"
    assert failure.how in capfd.readouterr().err
    again = reproduce("archives", failure.seed, tmp_path)
    assert again.startswith(f"archives {failure.seed} traceback:") and 'raise KeyError("planted")' in again


def test_seeds_of_failures_that_were_mended_come_first() -> None:
    with (Path(campaign.__file__).parent / "corpus.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["kind"] for row in rows} <= set(KINDS)
    for kind in KINDS:
        assert campaign._found_before(kind) == [int(row["seed"]) for row in rows if row["kind"] == kind]


@pytest.fixture
def needs_atheris() -> Iterator[None]:
    if not guided.targets():
        pytest.skip("atheris is not installed")
    yield


@pytest.mark.slow
@pytest.mark.usefixtures("needs_atheris")
@pytest.mark.parametrize("name", ["pickles", "npy", "tables", "results", "checkpoints"])
def test_guided_inputs_are_counted(name: str, tmp_path: Path) -> None:
    counts = guided.run_guided(guided.PREFIX + name, 1, 5.0, tmp_path)
    assert counts.numbers[f"fuzz/guided_{name}/inputs"] > 100 and not counts.failures
