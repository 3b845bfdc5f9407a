"""Packages of claims that somebody else installed: what they show, and what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from installing import Install, installing

from gnnexp.cli.main import run_command
from gnnexp.reports.claims import GROUP, installed_papers

MODULE = """
from gnnexp.reports.claims import Claims, Verdicts
from gnnexp.reports.tables.table import ReportTable


class Mine(Claims):
    sweeps = ("mine_table1",)

    def verdicts(self, runs):
        return Verdicts(ReportTable(("claim", "runs"), (("it is fast", str(len(runs))),), "One claim."), {"not run": 1})


MINE, OTHER = Mine(), "no claims"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution by its name with entry points; nothing else is installed, and the folder is empty."""
    install = installing(tmp_path, monkeypatch, GROUP)
    (tmp_path / "site" / "claims_of_mine.py").write_text(MODULE)
    (tmp_path / "site" / "broken_claims.py").write_text("import a_module_that_is_not_there\n")
    return install


def test_a_package_of_a_user_shows_its_paper(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("my-claims", mine="claims_of_mine:MINE")
    assert run_command(["claims", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["papers"]["mine"]
    assert document["verdicts"] == {"not run": 1} and document["not_run"] == ["mine_table1"]
    assert "it is fast" in Path("reports/claims/mine.md").read_text()


@pytest.mark.parametrize("words", [[], ["gsplit"]])
def test_without_a_package_the_message_says_what_to_install(
    install: Install, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    install("another-package")
    assert run_command(["claims", *words]) == 2
    said = capsys.readouterr().err
    assert "no package of papers' claims is installed" in said and "pip install the wheel gnnexp_papers" in said


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("broken_claims:MINE", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("a_package_that_is_gone.claims:MINE", "ModuleNotFoundError"),
        ("claims_of_mine:MISSING", "AttributeError"),
        ("claims_of_mine:OTHER", "is a str; the package bad-claims must name a gnnexp.reports.claims.Claims"),
        ("claims_of_mine:Mine", "is a ABCMeta"),
        ("claims_of_mine", "is a module"),
        ("no reference!", "bad-claims cannot load it"),
    ],
)
def test_a_bad_package_is_named_and_the_others_work(
    install: Install, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("bad-claims", bad=value)
    install("my-claims", mine="claims_of_mine:MINE")
    assert run_command(["claims"]) == 2
    printed = capsys.readouterr()
    assert "it is fast" in printed.out and Path("reports/claims/mine.csv").is_file()
    assert f"claims bad='{value}'" in printed.err and says in printed.err
    assert printed.err.count("fix:") == 1 and "pip uninstall bad-claims" in printed.err
    assert run_command(["claims", "mine"]) == 0


def test_two_packages_of_one_name_are_refused(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("my-claims", mine="claims_of_mine:MINE", more="claims_of_mine:MINE")
    install("your-claims", mine="claims_of_mine:MINE")
    assert run_command(["claims"]) == 2
    printed = capsys.readouterr()
    assert "claims mine='my-claims, your-claims': several installed packages" in printed.err
    assert "claims of more" in printed.out and "claims of mine" not in printed.out


def test_a_package_that_is_found_twice_is_one(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation may stand next to an earlier one."""
    install("my-claims", mine="claims_of_mine:MINE")
    install("my-claims", tmp_path, mine="an_older.module:MINE")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    assert [entry.value for entry in installed_papers()["mine"].values()] == ["claims_of_mine:MINE"]


def test_metadata_in_the_current_folder_is_no_installed_package(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that somebody has downloaded runs no code because a command is typed in it."""
    install("evil", Path.cwd(), mine="evil:MINE")
    Path("evil.py").write_text("raise AssertionError('it was imported')\n")
    assert run_command(["claims"]) == 2
    assert "no package of papers' claims is installed" in capsys.readouterr().err
