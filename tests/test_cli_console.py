"""What the user sees: text of a run is text, whatever rich takes for markup."""

from __future__ import annotations

import io

from rich.console import Console

from gnnexp.cli.console import states_table


def test_labels_and_reasons_are_no_markup() -> None:
    written = io.StringIO()
    rows = [("model=[gcn]", "failed", "SLURM ended the job: [/None] [red]x[/red]")]
    Console(file=written, width=200).print(states_table(rows, "sweep"))
    assert all(text in written.getvalue() for text in rows[0])
