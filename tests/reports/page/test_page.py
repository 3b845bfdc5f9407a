"""What a page says of runs: where they come from, and what a reader must be warned of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.page.page import NamedTable, Page, PageFigure, RunLine, notes, page_figures, provenance, run_line
from gnnexp.reports.tables.table import ReportTable

HARDWARE = {
    "host": "vm",
    "cpu": "EPYC",
    "cores": 2,
    "threads": 4,
    "ram_bytes": 8 * 2**30,
    "gpus": ["H100"],
    "system": "Linux",
}
NODE = {"host": "vm", "cpu": "EPYC", "cores": 2, "gpus": ["H100"], "torch": "2.13.0"}


def make_run(name: str = "a", **changes: object) -> RecordedRun:
    choices = {"dataset": "digits", "model": "sage", "paradigm": "data_parallel"}
    source = {
        "choices": choices,
        "code_version": "0.1.0+abc",
        "date": "2026-01-02T03:04:05+00:00",
        "libraries": {"torch": "2.13.0"},
        "hardware": HARDWARE,
        "reproduce": "gnnexp run a=b",
        **changes.pop("provenance", {}),
    }
    found = {"status": "finished", "facts": {"exact": True, "approximates": ""}, **changes}
    return RecordedRun(Path("runs") / name, {"system": "dgl", "seed": 0}, source, [], {}, **{"nodes": [NODE], **found})


def test_provenance_is_told_once_where_runs_share_it() -> None:
    told = dict(provenance([make_run("a"), make_run("b")]))
    assert told["gnnexp"] == "0.1.0+abc" and told["libraries"] == "torch 2.13.0"
    assert told["machine"] == "vm: EPYC, 2 cores (4 threads), 8.0 GiB memory, H100"
    assert told["runs made (UTC)"] == "2026-01-02 03:04"
    other = make_run("c", provenance={"code_version": "0.2.0", "date": "2026-01-03T00:00:00+00:00"})
    told = dict(provenance([make_run("a"), make_run("b"), other]))
    assert told["gnnexp"] == "0.1.0+abc (2 runs); 0.2.0 (1 run)"
    assert told["runs made (UTC)"] == "2026-01-02 03:04 to 2026-01-03 00:00"


def test_runs_of_equal_standing_need_no_warning() -> None:
    runs = [make_run("a"), make_run("b", nodes=[{**NODE, "host": "an equal node"}])]
    assert notes([run_line(run) for run in runs], runs) == []


def test_what_a_reader_must_know() -> None:
    stale = {"exact": False, "approximates": "rows are old"}
    runs = [
        make_run("a"),
        make_run("b", facts=stale, provenance={"code_version": "0.1.0+abc-dirty"}),
        make_run("c", status="failed", reason="out of memory", facts={}, nodes=[{**NODE, "cores": 64}]),
    ]
    lines = [*(run_line(run) for run in runs), RunLine("seed=1", "waiting")]
    text = "\n".join(notes(lines, runs))
    for words in (
        "1 of 4 runs failed",
        "1 of 4 runs waiting",
        "2 versions of gnnexp (the Provenance",
        "several kinds of machines",
        "dgl approximates: rows are old.",
    ):
        assert words in text, words
    told = dict(provenance(runs))["not reproducible by the commit alone"]
    assert told.startswith("1 of 3 runs were made by code that differs")
    assert "not reproducible by the commit alone" not in dict(provenance(runs[:1]))
    assert [line.exact for line in lines] == ["yes", "no: rows are old", "", ""]
    assert lines[2].reason == "out of memory" and lines[0].command == "gnnexp run a=b"


def test_figures_are_the_svg_files_with_their_data() -> None:
    data = ReportTable(("x",), (("1",),), "Mean over seeds.")
    files = [Path("r/accuracy.png"), Path("r/accuracy.svg"), Path("r/accuracy.csv"), Path("r/my_own.svg")]
    accuracy, own = page_figures(files, {"accuracy": data})
    assert accuracy.file == Path("r/accuracy.svg") and accuracy.data == data
    assert accuracy.caption == "", "it is drawn into the figure"
    assert "Accuracy. Mean over seeds. Its numbers are in the table below it." in accuracy.alt
    assert own.caption == "My own." and own.data is None and "tables of this page" in own.alt


def test_the_digest_is_of_what_is_said() -> None:
    page = Page(
        "t",
        tables=[NamedTable("c", ReportTable(("x",), (("1",),), "caption"))],
        version="1",
        figures=[PageFigure(Path("here/a.svg"), "a", "a")],
        date="today",
    )
    assert page.digest() == replace(page, date="tomorrow", figures=[PageFigure(Path("there/a.svg"), "a", "a")]).digest()
    for other in (
        replace(page, version="2"),
        replace(page, notes=["n"]),
        replace(page, tables=[NamedTable("c", ReportTable(("x",), (("2",),), "caption"))]),
    ):
        assert other.digest() != page.digest()
