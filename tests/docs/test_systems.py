"""Every preset is on a system's page, whose made parts are up to date and whose commands are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import system_pages
from site_pages import ALL_FENCES, ROOT

from gnnexp.config.compose import compose
from gnnexp.experiment.build import read

PRESETS = {path.stem for path in (ROOT / "conf" / "system").glob("*.yaml")}
SECTIONS = [
    "The algorithm",
    "How gnnexp makes it",
    "What is exact",
    "What is ours",
    "Traffic of an epoch",
    "Options worth knowing",
    "Run it",
    "Claims",
]


def test_every_preset_has_a_page() -> None:
    shown = [name for about in system_pages.PAGES.values() for name in about.presets]
    assert sorted(shown) == sorted(PRESETS)
    assert {path.stem for path in system_pages.FOLDER.glob("*.md")} == set(system_pages.PAGES)


@pytest.mark.parametrize("name", system_pages.PAGES)
def test_made_parts_are_up_to_date(name: str) -> None:
    """`PYTHONPATH=tests/support python tests/support/system_pages.py` writes the pages again."""
    assert (system_pages.FOLDER / f"{name}.md").read_text(encoding="utf-8") == system_pages.page(name)


@pytest.mark.parametrize("name", system_pages.PAGES)
def test_pages_say_the_same_things(name: str) -> None:
    text = (system_pages.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    assert f"(systems/{name}.md)" in (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", system_pages.PAGES)
def test_commands_are_right(name: str) -> None:
    source = Path("docs/systems") / f"{name}.md"
    (command,) = (
        line
        for fence in ALL_FENCES
        if fence.source == source and fence.language == "bash"
        for line in fence.code.splitlines()
    )
    program, verb, *overrides = shlex.split(command)
    assert (program, verb) == ("gnnexp", "run")
    composed = compose(overrides)
    assert read(composed.config).problems == ()
    assert composed.config["system"] in system_pages.PAGES[name].presets


def test_every_claim_is_on_its_papers_page() -> None:
    for paper in system_pages.PAPERS:
        text = (system_pages.FOLDER / f"{paper}.md").read_text(encoding="utf-8")
        assert all(f'<a id="{claim["claim"]}">' in text for claim in system_pages.read_claims(paper))


def test_verdicts_get_a_column() -> None:
    """Where something has evaluated claims, as docs/results has; the others are named as not evaluated."""
    assert "gsplit_redundant_edges" in system_pages.kept_verdicts()
    first = system_pages.read_claims("gsplit")[0]["claim"]
    _, _, head, _, one, two, *_ = system_pages.claims("gsplit", {first: "holds"}).splitlines()
    assert head.endswith("| verdict |") and one.endswith("| holds |") and two.endswith("| not evaluated |")
    assert "verdict" not in system_pages.claims("gsplit").splitlines()[2]


def test_a_page_without_markers_is_refused() -> None:
    """The control."""
    with pytest.raises(ValueError, match="0 times claims"):
        system_pages.between("nothing", "claims", "x")
