"""The tables of docs/torture.md, from docs/results/torture.json: `python -m torture.page` writes them into the page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from torture.counts import Session, read_sessions, total

ROOT = Path(__file__).parents[1]
PAGE, COUNTS = ROOT / "docs" / "torture.md", ROOT / "docs" / "results" / "torture.json"
START, END = "<!-- counts -->", "<!-- /counts -->"
NOTHING = "No session has been recorded yet."
_INPUTS = "fuzz/*/inputs"
# What a reader asks first, in this order; every other number is in the second table.
_FIRST = {
    "kills_compared": "kills carried through: the run was resumed until it had finished, and compared",
    "kills_before_the_run": "kills before the run had a record: nothing to compare, the command was repeated",
    "runs_compared": "finished runs compared with an undisturbed one, bit by bit",
    "orphans": "processes that outlived their command",
    "frozen": "processes frozen",
    _INPUTS: "malformed inputs",
}


def tables(sessions: Sequence[Session]) -> str:
    """What stands between the page's markers."""
    if not sessions:
        return NOTHING
    counts = total(sessions)
    hours = sum(one.seconds for one in sessions) / 3600
    dates = sorted(one.date[:10] for one in sessions)
    commits = ", ".join(sorted({f"`{one.commit[:12]}`" for one in sessions}))
    lines = [
        f"{len(sessions)} session{'s' if len(sessions) > 1 else ''}, {hours:.1f} hours, {dates[0]} to {dates[-1]}, on "
        f"{'; '.join(sorted({one.machine for one in sessions}))}; commits {commits}.",
        "",
        "| what | how many |",
        "|---|---|",
        *(f"| {words} | {_sum(counts.numbers, name):,} |" for name, words in _FIRST.items()),
        f"| failures | {len(counts.failures):,} |",
        "",
        *_details(counts.numbers),
        "",
        "| date | seconds | seed | kills compared | failures |",
        "|---|---|---|---|---|",
        *(
            f"| {one.date} | {one.seconds:,.0f} | {one.seed} | {one.counts.numbers.get('kills_compared', 0):,} | "
            f"{len(one.counts.failures):,} |"
            for one in sessions
        ),
    ]
    if counts.failures:
        lines += [
            "",
            "Failures:",
            "",
            *(f"- {one.campaign}: {_short(one.what)} Again: `{one.how}`" for one in counts.failures),
        ]
    return "\n".join(lines)


def _sum(numbers: Mapping[str, int], pattern: str) -> int:
    """Of one counter, or of all that the pattern fits."""
    return sum(value for name, value in numbers.items() if fnmatchcase(name, pattern))


def _details(numbers: Mapping[str, int]) -> list[str]:
    rest = [(name, value) for name, value in sorted(numbers.items()) if name not in _FIRST]
    return ["| counter | how many |", "|---|---|", *(f"| `{name}` | {value:,} |" for name, value in rest)]


def _short(what: str) -> str:
    """The beginning of a failure, in one line that a table or a list takes, without HTML."""
    line = " ".join(what.split())[:200]
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def filled(text: str, sessions: Sequence[Session]) -> str:
    """The page with its tables."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{tables(sessions)}\n\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), read_sessions(COUNTS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
