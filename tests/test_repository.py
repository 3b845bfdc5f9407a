"""What the repository offers to those who join: workflows, forms, the changelog and the citation say what is so."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
CALL = re.compile(r"\bmake ([a-z][a-z-]*)")
CHANGES = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
LONGEST_ENTRY = 170


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def steps(path: Path) -> Iterator[dict[str, Any]]:
    """All steps of a workflow, with those of our own actions that it uses."""
    for job in read(path)["jobs"].values():
        for step in job["steps"]:
            yield step
            if step.get("uses", "").startswith("./"):
                yield from read(ROOT / step["uses"] / "action.yml")["runs"]["steps"]


def called(path: Path) -> set[str]:
    return {target for step in steps(path) for target in CALL.findall(step.get("run", ""))}


def made() -> set[str]:
    """Targets of the Makefile that say what they do."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))


def allowed_pythons() -> list[str]:
    first, last = map(int, re.findall(r"3\.(\d+)", project()["requires-python"]))
    return [f"3.{minor}" for minor in range(first, last)]


def entries() -> Iterator[str]:
    for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("## Unreleased", 1)[1].splitlines():
        if line and not line.startswith("#"):
            yield line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_only_targets_that_exist(path: Path) -> None:
    assert called(path)
    assert called(path) <= made()


def test_the_workflow_runs_all_that_ci_runs() -> None:
    run = "\n".join(
        line
        for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith(("#", "echo"))
    )
    beside = re.findall(r"^ *start ([a-z-]+)$", run, re.MULTILINE)
    assert len(beside) == 2 and {*CALL.findall(run), *beside} == called(GITHUB / "workflows/ci.yml")


def test_every_night_runs_the_slow_tests() -> None:
    assert called(GITHUB / "workflows/nightly.yml") == {"setup", "nightly"}


def test_the_tests_run_on_every_python_that_is_allowed() -> None:
    matrix = read(GITHUB / "workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [name.rsplit(" ", 1)[1] for name in project()["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert matrix == named == allowed_pythons()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        assert "permissions" not in job, name
        assert 0 < job["timeout-minutes"] <= 360, name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_to_a_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert any(name.startswith("actions/checkout@") for name in used)
    for name in used:
        assert name.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_text_of_a_stranger_is_a_part_of_a_script(path: Path) -> None:
    """A title of a pull request in `${{ }}` would be executed by the shell."""
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [path.stem for path in FORMS] == ["bug", "new_system", "wrong_number"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_is_one_that_github_takes(path: Path) -> None:
    form = read(path)
    assert form.keys() == {"name", "description", "title", "labels", "body"}
    fields = [field for field in form["body"] if "id" in field]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    for field in form["body"]:
        assert field["type"] in ("checkboxes", "dropdown", "input", "textarea")
        assert field["attributes"]["label"]
        assert bool(field["attributes"].get("options")) == (field["type"] in ("checkboxes", "dropdown"))


def test_the_pull_request_has_a_checklist_whose_files_exist() -> None:
    text = (GITHUB / "pull_request_template.md").read_text(encoding="utf-8")
    assert text.count("- [ ] ") >= 5
    assert set(CALL.findall(text)) <= made()
    assert all((ROOT / path).exists() for path in re.findall(r"`([\w/]+\.\w+|docs/)`", text))


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert [citation["title"], citation["version"], citation["license"]] == [
        project()["name"],
        project()["version"],
        project()["license"],
    ]
    assert citation["abstract"] == project()["description"]
    assert set(citation["keywords"]) == set(project()["keywords"])


def test_the_changelog_begins_with_what_is_not_released_and_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[:2] == ["Unreleased", project()["version"]]
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= set(CHANGES)


def test_an_entry_of_the_changelog_is_one_line() -> None:
    assert [line for line in entries() if not line.startswith("- ") or len(line) > LONGEST_ENTRY] == []


@pytest.mark.parametrize("target", sorted({"nightly", "coverage", "test-slow"}))
def test_contributing_names_the_targets_that_ci_run_leaves_out(target: str) -> None:
    assert f"`make {target}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_a_night_has_random_examples_of_the_seed_that_it_prints() -> None:
    assert settings.get_profile("gnnexp").derandomize
    assert not settings.get_profile("nightly").derandomize
    planned = subprocess.run(["make", "-n", "nightly", "SEED=17"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 'echo "the examples of this run: make nightly SEED=17"' in planned.stdout
    assert planned.stdout.count("--hypothesis-profile nightly --hypothesis-seed 17") == 2


@cache
def planned(target: str, *words: str) -> str:
    """What `make` would do, those things included that are done."""
    command = ["make", "-n", "-B", target, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("run", ["all"]),
        ("test", ["all", "test"]),
        ("lint", ["all", "lint"]),
        ("docs", ["all", "all,docs", "test"]),
    ],
)
def test_a_target_installs_what_it_needs_and_nothing_else(target: str, extras: list[str]) -> None:
    found = re.findall(r"-e '\.\[([a-z,]+)\]'", planned(target))
    assert sorted(set(found)) == sorted(extras)
    assert ("triton" in planned(target)) == ("test" in extras)


def test_all_extras_together_are_for_developers() -> None:
    extras = project()["optional-dependencies"]
    assert extras["dev"] == ["gnnexp[test,lint]"]
    assert {"gnnexp[all,testing]"} <= set(extras["test"]) and {"gnnexp[all,docs,testing]"} <= set(extras["lint"])


def test_the_python_of_set_up_is_one_that_runs(tmp_path: Path) -> None:
    """A name on PATH may be a shim of pyenv, which fails when it is called."""
    (tmp_path / "python3.11").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.12").write_text('#!/bin/sh\ncase "$2" in *version_info*) exit 0;; esac\nexit 1\n')
    for name in ("python3.11", "python3.12"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"))
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    (tmp_path / "papers").mkdir()
    for name in ("pyproject.toml", "papers/pyproject.toml"):
        (tmp_path / name).touch()
    done = subprocess.run(
        ["make", "-n", "setup"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert "python3.12 -m venv .venv" in done.stdout
