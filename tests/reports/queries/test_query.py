"""Queries: their form, what they may do, and what a mistake in one says, before any run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from figure_runs import figure_run

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.errors import ConfigError
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.answer import answers_of, table_of
from gnnexp.reports.query import query_names, read_query
from gnnexp.reports.tables.table import ReportTable

RUNS = "/* runs */\nSELECT run FROM runs\n"
CAPTION = "/* caption */\nSELECT 'all.'\n"
FIGURE = "/* figure mine\ndraw: bars\nx: a\nseries: b\npanels: [{y: [c]}]\n*/\n"


@pytest.fixture
def runs() -> list[RecordedRun]:
    return [figure_run("dgl", 2.0), figure_run("p3", 1.0)]


def written(folder: Path, table: str, more: str = "") -> str:
    file = folder / "mine.sql"
    file.write_text(f"{RUNS}/* table */\n{table}\n{CAPTION}{more}")
    return str(file)


def asked(name: str, runs: list[RecordedRun]) -> ReportTable:
    return table_of(answers_of(read_query(name, "here"), runs, "here"))


def problem_of(name: str, runs: list[RecordedRun]) -> str:
    with pytest.raises(ConfigError) as caught:
        asked(name, runs)
    (problem,) = caught.value.problems
    return f"{problem.key}={problem.value}: {problem.allowed}"


def test_the_result_is_the_table(runs: list[RecordedRun], tmp_path: Path) -> None:
    name = written(
        tmp_path,
        "SELECT config['system'] AS system, run + 1 AS number, run AS system, NULL AS \"none?\", "
        'nullif(run, 0) AS "some?" FROM runs ORDER BY run DESC',
    )
    assert asked(name, runs) == ReportTable(("system", "number", "some"), (("p3", "2", "1"), ("dgl", "1", "–")), "all.")
    assert asked(name, []).header == ("system", "number"), "nobody has any"


def test_labels_head_a_table_and_the_median_epoch_is_at_hand(runs: list[RecordedRun], tmp_path: Path) -> None:
    name = written(
        tmp_path,
        "SELECT unnest(label), seconds(value) AS s FROM settings() JOIN typical USING (run) "
        "WHERE metric = 'time/epoch_s' ORDER BY place",
    )
    table = asked(name, runs)
    assert table.header[0] == "system" and table.header[-1] == "s"
    assert [(row[0], row[-1]) for row in table.rows] == [("dgl", "2.0000"), ("p3", "1.0000")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM 'https://example.org/a.csv'",
        "SELECT * FROM runs_of_python",
        "SELECT getenv('HOME')",
    ],
)
def test_a_query_reaches_nothing(statement: str, runs: list[RecordedRun], tmp_path: Path) -> None:
    runs_of_python = runs  # DuckDB would find a table of this name here
    assert runs_of_python and problem_of(written(tmp_path, statement), runs).startswith("here (mine)=table: ")


@pytest.mark.parametrize(
    "statement",
    [
        "COPY runs TO '/tmp/x.csv'",
        "ATTACH '/tmp/x.db'",
        "SET threads = 3",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "LOAD httpfs",
        "DROP TABLE runs",
        "INSERT INTO epochs VALUES (0, 0, 'a', 1)",
        "SELECT 1; FROM runs",
        "",
        "PRAGMA database_list",
        "CALL duckdb_settings()",
        "EXPLAIN ANALYZE SELECT 1",
    ],
)
def test_other_statements_are_refused(statement: str, runs: list[RecordedRun], tmp_path: Path) -> None:
    assert "must be one SELECT" in problem_of(written(tmp_path, statement), runs)
    views = f"/* views */\n{statement or 'SELECT 1'}\n"
    file = Path(written(tmp_path, "SELECT 1", views))
    assert "=views: must be CREATE VIEW or MACRO" in problem_of(str(file), runs)


def test_duckdb_says_what_is_wrong_with_the_sweep_and_the_part(tmp_path: Path) -> None:
    query = written(tmp_path, "SELECT sytem FROM runs")
    (tmp_path / "my.yaml").write_text(f"report: {{query: {query}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_sweep(str(tmp_path / "my.yaml"))
    (problem,) = caught.value.problems
    assert "my.yaml: report.query" in problem.key and problem.value == "table"
    assert '"sytem" not found' in problem.allowed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1", "has no part /* runs */"),
        (f"{RUNS}/* table */ SELECT 1", "has no part /* caption */"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}{FIGURE.replace('bars', 'pie')}SELECT 1", "bars, lines, stacked"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}{FIGURE.replace('series', 'serie')}SELECT 1", "series"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}{FIGURE.replace('[{y: [c]}]', '3')}SELECT 1", "a list"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}{FIGURE.replace('y: [c]', 'y: c')}SELECT 1", "y"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}{FIGURE}SELECT 1 AS a, 2 AS b", "draws c, but its result has only a, b"),
        (f"{RUNS}/* table */ SELECT 1 {CAPTION}/* figure mine */ SELECT 1", "NAME"),
    ],
)
def test_the_form_is_checked(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(text)
    with pytest.raises(ConfigError) as caught:
        asked(str(tmp_path / "mine.sql"), [])
    assert said in str(caught.value)


def test_what_is_no_query_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    for name in ("balanse", 3, None, ["balance"]):
        with pytest.raises(ConfigError, match="balance"):
            read_query(name, "here")
    with pytest.raises(ConfigError, match="must be a readable SQL file"):
        read_query(str(tmp_path / "none.sql"), "here")


@pytest.mark.parametrize("name", query_names())
def test_every_query_of_the_product_is_asked_about_no_runs(name: str) -> None:
    """As before a sweep starts: all parts are understood, figures find their columns, and nothing is shown."""
    query = read_query(name, "here")
    (answer,) = answers_of(query, [])
    assert answer.table.rows == () and answer.table.caption and not any(answer.data.values())
    assert {chart.figure for chart in query.charts} == answer.data.keys()


def test_the_command_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "SELECT config['system'] AS system, count(*) AS runs FROM runs GROUP BY 1 ORDER BY 1")
    assert run_command(["report", "mine.sql", "gsplit_table1", "--csv"]) == 0
    saved = (tmp_path / "reports" / "gsplit_table1" / "mine.csv").read_text().splitlines()
    assert saved[0] == "system,runs" and len(saved) == 3


def test_the_documented_query_is_one(runs: list[RecordedRun], tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "reports.md"
    (tmp_path / "mine.sql").write_text(page.read_text().partition("```sql\n")[2].partition("```")[0])
    (answer,) = answers_of(read_query(str(tmp_path / "mine.sql"), "here"), runs)
    assert [(row[0], row[-1]) for row in answer.table.rows] == [("dgl", "2.0000"), ("p3", "1.0000")]
    assert answer.table.caption == "Seconds of a typical epoch."
    assert [row["value"] for row in answer.data["epochs"]] == [2.0, 1.0]
