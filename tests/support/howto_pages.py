"""Pages of docs/howto show files of examples/: the text that follows a marker is the file's, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
# GitHub and mkdocs hide a comment and show the block below it.
_SHOWN = re.compile(r"^<!-- file: (\S+) -->\n(?:\*\*`[^\n]*`\*\*\n\n)?(?:```\w*\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".tsv": "text", ".csv": "text", ".toml": "toml"}


def files_of(text: str) -> list[str]:
    """Files that a page shows."""
    return _SHOWN.findall(text)


def filled(text: str) -> str:
    """The page with the present text of each file."""

    def shown(match: re.Match[str]) -> str:
        file = ROOT / match[1]
        title = "/".join(Path(match[1]).parts[2:]) or file.name
        return (
            f"<!-- file: {match[1]} -->\n**`{title}`**\n\n```{_LANGUAGES[file.suffix]}\n"
            f"{file.read_text(encoding='utf-8')}```\n"
        )

    return _SHOWN.sub(shown, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
