"""Write the tables of this folder: links between 120 pages, the kind of each page, and the words of its title."""

from __future__ import annotations

import json
import random
from pathlib import Path

KINDS = ("company", "government", "show")
WORDS = {
    "company": ("trade", "brand", "shop", "export"),
    "government": ("city", "court", "office", "law"),
    "show": ("series", "band", "film", "stage"),
}
ALL_WORDS = [word for words in WORDS.values() for word in words]


def tables(seed: int = 0) -> dict[str, str]:
    """The content of each file by name. Pages link to pages of their kind four times out of five."""
    draw = random.Random(seed)
    kinds = {
        f"{draw.choice(WORDS[kind]).title()} {number}": kind for number in range(120) for kind in (KINDS[number % 3],)
    }
    pages = list(kinds)
    links = []
    for page in pages:
        near = [other for other in pages if kinds[other] == kinds[page] and other != page]
        links += [(page, draw.choice(near if draw.random() < 0.8 else pages)) for _ in range(4)]
    words = {
        page: [ALL_WORDS.index(draw.choice(WORDS[kind] if draw.random() < 0.7 else ALL_WORDS)) for _ in range(3)]
        for page, kind in kinds.items()
    }
    return {
        "links.csv": "".join(f"{first},{second}\n" for first, second in [("source", "target"), *links]),
        "pages.csv": "".join(f"{page},{kind}\n" for page, kind in [("name", "kind"), *kinds.items()]),
        "words.json": json.dumps(words, indent=1) + "\n",
    }


def write(folder: Path) -> None:
    """Write all files."""
    for name, content in tables().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).resolve().parent)
