"""MkDocs' hooks: pages that are made of the code, pages that fill themselves, and links that work on both sides."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

from generated import pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository import included, rebased

Nav = list[Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what `generated` makes, and write out the stars of the navigation."""
    for uri, text in pages().items():
        files.append(File.generated(config, uri, content=text))
    uris = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = expanded(config.nav or [], uris)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Parts of README.md where a page asks for them; links as they are on the site."""
    uri = page.file.src_uri
    return rebased(included(markdown, uri), f"docs/{uri}", uri)


def expanded(nav: Nav, uris: list[str]) -> Nav:
    """`nav` with the pages of `a/*.md` written out that no other entry names; sections without any are left out."""
    named = set(names(nav))

    def entries(node: Nav) -> Nav:
        found: Nav = []
        for entry in node:
            if isinstance(entry, str) and "*" in entry:
                found += [uri for uri in uris if fnmatch(uri, entry) and uri not in named]
            elif isinstance(entry, dict):
                ((title, inner),) = entry.items()
                inner = entries(inner) if isinstance(inner, list) else inner
                found += [{title: inner}] if inner else []
            else:
                found.append(entry)
        return found

    return entries(nav)


def names(nav: Nav) -> list[str]:
    """All pages that `nav` names, stars too."""
    found: list[str] = []
    for entry in nav:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += names(inner) if isinstance(inner, list) else [inner]
    return found
