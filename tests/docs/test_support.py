"""docs/support.md is what `check` says of every system, task and model."""

from __future__ import annotations

import support_matrix


def test_the_page_is_true():
    """`PYTHONPATH=tests/support python tests/support/support_matrix.py` writes the page again."""
    assert support_matrix.PAGE.read_text(encoding="utf-8") == support_matrix.page()


def test_it_tells_what_is_refused():
    """The control: a combination that is known to be refused, and one that is known to be taken."""
    page = support_matrix.PAGE.read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")}
    assert rows["`gsplit`"].count("**all**") == 4
    assert rows["`sdt_gnn`"].split("|")[3].strip().startswith("—")
