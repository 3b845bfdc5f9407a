"""The pages of the site that no file holds: they are made of the code, the YAML files, and files at the root."""

from __future__ import annotations

from functools import cache

from command_page import commands_page
from config_pages import config_pages
from repository import PAGES, root_page
from sweep_page import sweeps_page


@cache
def pages() -> dict[str, str]:
    """Text in Markdown by path inside docs/."""
    return {
        **{page: root_page(name) for name, page in PAGES.items() if page != "index.md"},
        **config_pages(),
        "reference/commands.md": commands_page(),
        "reference/sweeps.md": sweeps_page(),
    }
