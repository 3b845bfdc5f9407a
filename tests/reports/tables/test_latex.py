r"""LaTeX of a table: macros whose numbers equal those of the other formats, in a run of LaTeX; no text is a command."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gnnexp.reports.tables.cells import CountCell, IntervalCell, NumberCell, StatisticsCell
from gnnexp.reports.tables.data import document_of
from gnnexp.reports.tables.latex import command_name, escaped, latex_of
from gnnexp.reports.tables.table import ReportTable

LACKS = "no pdflatex (Debian: texlive-latex-recommended, texlive-science)"
FIELDS = (("mean", "", 3), ("half_width", "HalfWidth", 1), ("min", "Min", 3), ("max", "Max", 3))
NASTY = "a_b % & $x$ #1 {\\input} ~ ^ < > | – ± 2"
TABLE = ReportTable(
    ("system", "data_set", "acc/test %", "epoch s", "bytes MB", "ratio", "interval", "runs"),
    (
        (
            "dgl 2",
            NASTY,
            StatisticsCell((87.125, 86.25, 90.0), ".2f"),
            StatisticsCell((0.0125,), ".4f"),
            StatisticsCell((1.25e6, 2e6)),
            NumberCell(0.5),
            IntervalCell(-1.5, 2.0),
            CountCell(3),
        ),
        (
            "p3",
            "cora",
            StatisticsCell((80.0, 81.0, 82.0, 83.0, 84.0), ".2f"),
            StatisticsCell((10.0, 11.0, 12.0, 13.0, 14.5), ".4f"),
            StatisticsCell((-3.25e-7,)),
            NumberCell(float("nan"), absent="OOM"),
            IntervalCell(float("nan"), float("nan")),
            CountCell(5, 1, "OOM"),
        ),
        (
            "none",
            "cora",
            StatisticsCell((), ".2f", "OOM"),
            StatisticsCell((0.0,), ".4f"),
            StatisticsCell(()),
            NumberCell(2.0),
            IntervalCell(0.0, 1.0),
            CountCell(0, 2, "OOM"),
        ),
    ),
    NASTY,
)


def test_names_have_letters_only() -> None:
    assert command_name("acc/test 2 %") == "AccTestTwoPercent"
    assert command_name("p3-11_x") == "PThreeOneOneX"
    assert command_name("größe ±") == "GroePlusMinus" or command_name("größe ±") == "GroßePlusMinus"
    names = re.findall(r"\\newcommand\{\\(\w+)\}", latex_of(TABLE, "quick_start"))
    assert all(re.fullmatch(r"quickStart[A-Za-z]+", name) for name in names)
    assert len(names) == len(set(names))


def test_two_cells_of_one_name_have_two_commands() -> None:
    table = ReportTable(
        ("system", "a-b", "a b"), (("x", NumberCell(1), NumberCell(2)), ("x", NumberCell(3), NumberCell(4))), ""
    )
    names = re.findall(r"\\newcommand\{\\(\w+)\}", latex_of(table, "t"))
    assert names == ["tXAB", "tXABX", "tXABXX", "tXABXXX", "tCaption", "tTable"]


def test_no_text_of_a_record_is_a_command() -> None:
    assert escaped("\\input{/etc/x}") == r"\textbackslash{}input\{/etc/x\}"
    commands = set(re.findall(r"\\([a-zA-Z]+)", escaped(NASTY)))
    assert commands == {
        "textbackslash",
        "textasciitilde",
        "textasciicircum",
        "textless",
        "textgreater",
        "textbar",
        "pm",
    }


def test_numbers_are_aligned_at_their_marker() -> None:
    text = latex_of(TABLE, "t")
    assert r"{l l S[table-format=2.2]@{\,}l S[table-format=2.4]@{\,}l S[table-format=-1.3e3]@{\,}l " in text
    assert r"S[table-format=1.1] l r}" in text and "87.79 & (86.25 to 90.00) & 0.0125 &" in text
    assert "{OOM}" in text and r"$\pm$ 1.96" in text


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="no pdflatex (Debian: texlive-latex-recommended, texlive-science)"
)
def test_latex_prints_the_numbers_of_the_other_formats(tmp_path: Path) -> None:
    (tmp_path / "table.tex").write_text(latex_of(TABLE, "quick_start"))
    names = re.findall(r"\\newcommand\{\\(\w+)\}", latex_of(TABLE, "quick_start"))
    values = [name for name in names if not name.endswith(("Caption", "Table"))]
    lines = "\n".join(f"\\typeout{{[{name}=\\{name}]}}" for name in values)
    (tmp_path / "main.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,siunitx}\\input{table.tex}\\begin{document}"
        "\\begin{table}\\caption{\\quickStartCaption}\\quickStartTable\\end{table}" + lines + "\\end{document}"
    )
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    printed = dict(re.findall(r"\[(\w+)=([^]]*)\]", done.stdout.replace("\n", "")))
    rows = document_of(TABLE)["rows"]
    assert isinstance(rows, list)
    for row, own in zip(rows, ("DglTwo" + command_name(NASTY), "PThreeCora", "NoneCora"), strict=True):
        for header in ("acc/test %", "epoch s", "bytes MB"):
            start = f"quickStart{own}{command_name(header)}"
            for field, ending, digits in (
                ("mean", "", 3),
                ("half_width", "HalfWidth", 1),
                ("min", "Min", 3),
                ("max", "Max", 3),
            ):
                number, text = row[header][field], printed[start + ending]
                if number is None:
                    assert text in ("OOM", "--")
                else:
                    shown = re.sub(r"\\protect *|\\num *|[{}]", "", text)
                    assert float(shown) == pytest.approx(number, rel=10.0**-digits, abs=5e-5), (start, ending)
            assert printed[start + "N"] == str(row[header]["n"])


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason=LACKS)
def test_rows_in_brackets_and_columns_without_a_number_are_typeset(tmp_path: Path) -> None:
    """A bracket behind the end of a line is that line's option, and siunitx takes whole numbers of digits only."""
    absent = NumberCell(float("nan"), absent="OOM")
    table = ReportTable(("fanouts", "epoch s"), (("[5, 5]", absent), ("*", absent), ("[10, 10]", absent)), "")
    (tmp_path / "table.tex").write_text(latex_of(table, "t"))
    (tmp_path / "main.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,siunitx}\\input{table.tex}\\begin{document}\\tTable\\end{document}"
    )
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "S[table-format=1.0]" in latex_of(table, "t")
