"""The navigation is complete, pages fill themselves, and the whole builds without a warning and without the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from generated import pages
from mkdocs_hooks import expanded, names
from repository import included, readme_part, rebased
from site_pages import ROOT, SOURCES


class Loader(yaml.SafeLoader):
    """mkdocs.yml names a function of Python's."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
NAV = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
URIS = sorted({str(path.relative_to("docs")) for path in SOURCES if path.parts[0] == "docs"} | set(pages()))


def test_navigation_is_complete() -> None:
    """Every page once; what it names is there."""
    assert sorted(names(expanded(NAV, URIS))) == URIS


def test_a_star_takes_what_nobody_names() -> None:
    nav = [{"A": ["a/one.md", "a/*.md"]}, {"B": ["b/*.md"]}, {"C": "c.md"}]
    assert expanded(nav, ["a/one.md", "a/three.md", "a/two.md", "c.md"]) == [
        {"A": ["a/one.md", "a/three.md", "a/two.md"]},
        {"C": "c.md"},
    ]


def test_parts_of_the_readme_are_on_the_first_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    asked = re.findall(r"<!-- README: (\w+) -->", index)
    assert asked and all(readme_part(name) in (ROOT / "README.md").read_text(encoding="utf-8") for name in asked)
    filled = included(index, "index.md")
    assert "<!-- README" not in filled and "gnnexp sweep quickstart" in filled
    assert "](../howto/layer.md)" in included("<!-- README: extend -->", "concepts/exactness.md")
    with pytest.raises(KeyError):
        readme_part("nothing")


def test_the_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize(
    ("link", "source", "page", "becomes"),
    [
        ("[a](docs/systems.md#options)", "README.md", "index.md", "[a](systems.md#options)"),
        ("[a](../CONTRIBUTING.md)", "docs/running.md", "running.md", "[a](contributing.md)"),
        ("[a](../../README.md)", "docs/systems/dgl.md", "systems/dgl.md", "[a](../index.md)"),
        ("[a](../systems.md)", "docs/systems/dgl.md", "systems/dgl.md", "[a](../systems.md)"),
        ("[a](../pyproject.toml)", "docs/running.md", "running.md", "a"),
        (
            "[docs/running.md](docs/running.md)",
            "README.md",
            "index.md",
            "[Running: stop, go on, a cluster, faults](running.md)",
        ),
        ("[a](nowhere.md)", "docs/running.md", "running.md", "[a](nowhere.md)"),
        ("[a](https://x.org/y) [b](#here)", "README.md", "index.md", "[a](https://x.org/y) [b](#here)"),
        ("`[a](docs/systems.md)`", "README.md", "index.md", "`[a](docs/systems.md)`"),
    ],
)
def test_links_lead_to_the_same_place_on_the_site(link: str, source: str, page: str, becomes: str) -> None:
    assert rebased(link, source, page) == becomes


@pytest.mark.slow
@pytest.mark.interpreter
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    """This takes seconds on an idle machine, and longer next to other work."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?(https?:[^\" >]+)|"
        r"<link[^>]*rel=\"?(?:stylesheet|preconnect|preload|icon)\"?[^>]*href=\"?(https?:[^\" >]+)|"
        r"url\((https?:[^)]+)\)"
    )
    texts = {path: path.read_text(encoding="utf-8") for kind in ("html", "css") for path in tmp_path.rglob(f"*.{kind}")}
    assert len(texts) > 40
    assert {str(path): found[0] for path, text in texts.items() if (found := fetched.search(text))} == {}
