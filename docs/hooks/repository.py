"""Files at the root of the repository on the site: parts of README.md, whole pages, and links between all of them."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

ROOT = Path(__file__).parents[2]
# Where a file outside docs/ is on the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(
    r"(?P<code>```.*?^\s*```|`[^`\n]+`)|(?P<image>!?)\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]"
    r"\((?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)",
    re.MULTILINE | re.DOTALL,
)
INCLUDE = re.compile(r"^<!-- README: (\w+) -->$", re.MULTILINE)


def readme_part(name: str) -> str:
    """What stands in README.md between `<!-- site: name -->` and `<!-- /site -->`.

    Raises:
        KeyError: there is no such part.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- site: {name} -->\n(.*?)<!-- /site -->", text, re.DOTALL)
    if found is None:
        raise KeyError(f"README.md has no part {name}")
    return found[1].strip()


def included(text: str, page: str) -> str:
    """`text` of the `page` of the site with the parts of README.md that it asks for by `<!-- README: name -->`."""
    return INCLUDE.sub(lambda found: rebased(readme_part(found[1]), "README.md", page), text)


def root_page(name: str) -> str:
    """The text of a file at the root, as the site has it."""
    return rebased((ROOT / name).read_text(encoding="utf-8"), name, PAGES[name])


def title(path: Path) -> str:
    """The heading of a page, for links that are labelled with its path; the path's name where there is none."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.exists() else None
    return path.name if found is None else found[1]


def rebased(text: str, source: str, page: str) -> str:
    """`text` of the file `source` of the repository with links that lead from `page` of the site to the same places.

    What is no page (a file of results, code) is named without a link; what is not there at all stays as it is, and
    MkDocs tells of it.
    """

    def replaced(link: re.Match[str]) -> str:
        path = link["path"]
        if link["code"] or not path or re.match(r"\w+:", path):
            return link[0]
        target = normpath(f"{dirname(source)}/{path}" if dirname(source) else path)
        uri = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if uri is None:
            return link["label"] if (ROOT / target).exists() else link[0]
        label = title(ROOT / target) if link["label"].endswith(".md") else link["label"]
        return f"{link['image']}[{label}]({relpath(uri, dirname(page) or '.')}{link['anchor'] or ''})"

    return LINK.sub(replaced, text)
