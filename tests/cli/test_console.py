"""What is printed is what was there: rich's styles and pictures are for nobody's text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table

import gnnexp.cli
from gnnexp.cli.console import EpochPrinter, made_table, make_console, marked

TEXTS = ("pip install 'gnnexp[dgl]'", "[/] fanouts=[10,10] [red]", "seed:100:x", r"C:\[bold]")


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = make_console()
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    for printed in (
        text,
        marked(text, "yellow"),
        marked("x", "bold", text),
        marked("x", "dim", before=text),
        table,
        made_table(("run", "state", "reason"), [(text, "failed", text)], "sweep"),
    ):
        console.print(printed, soft_wrap=True)
    lines = capsys.readouterr().out
    assert lines.count(text) == 4 + 4 + 2


def test_no_command_writes_styles_into_its_text() -> None:
    """They would be printed: a style is what `marked` gives."""
    for file in Path(gnnexp.cli.__file__).parent.glob("*.py"):
        assert not re.findall(r"\[/?(?:bold|dim|yellow|red|green)\b[^\]\n]*\]", file.read_text()), file


def test_epochs_are_printed_when_their_file_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file handle may be free for a moment, or a disk may not answer."""
    printer = EpochPrinter(make_console(), tmp_path)
    file = tmp_path / "epochs.jsonl"
    file.mkdir()
    printer._print_new()
    file.rmdir()
    file.write_text('{"epoch": 7, "metrics": {"loss/train": 0.5, "time/epoch_s": 1.0}}\n')
    printer._print_new()
    assert "epoch   7" in capsys.readouterr().out
