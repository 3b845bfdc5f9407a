"""One report of two systems with three seeds, in every format: the paired verdict, and the same numbers everywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
from run_folder import metrics_of, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.reports.tables.latex import command_name

SCHEMA = Path(__file__).parents[2] / "docs" / "assets" / "report.schema.json"
FIELDS = {"mean": "", "half_width": "HalfWidth", "min": "Min", "max": "Max"}


def write_run(folder: Path, system: str, seed: int, seconds: float, acc: float, workers: int) -> None:
    """A run of three epochs; systems of one seed are made one after the other."""
    minute = 2 * seed + (system != "dgl")
    write_job(folder, uid=folder.name, date=f"2026-01-01T00:{minute:02d}", dataset_key="k")
    job = json.loads((folder / "job.json").read_text())
    hardware = {**job["config"]["hardware"], "workers": workers}
    job["config"] |= {"system": system, "seed": seed, "hardware": hardware}
    (folder / "job.json").write_text(json.dumps(job))
    lines = []
    for epoch in range(3):
        metrics = {**metrics_of(epoch), "time/epoch_s": seconds * (10 if epoch == 0 else 1), "acc/test": acc}
        lines.append(json.dumps({"epoch": epoch, "time": 1000.0 + epoch, "metrics": metrics}) + "\n")
    (folder / "epochs.jsonl").write_text("".join(lines))
    write_result(folder)


@pytest.fixture(params=[1, 2], ids=["one setting", "two settings"])
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Seeds spread far, but the same seed gives both systems nearly the same: only pairs show the difference."""
    monkeypatch.chdir(tmp_path)
    for workers in range(1, request.param + 1):
        for seed, (seconds, acc) in enumerate([(0.10, 0.80), (0.20, 0.85), (0.30, 0.90)]):
            slower, name = seconds * (1.5 + seed / 100), f"{workers}-{seed}"
            write_run(tmp_path / "all" / f"dgl-{name}", "dgl", seed, seconds, acc, workers)
            write_run(tmp_path / "all" / f"gsplit-{name}", "gsplit", seed, slower, acc - 0.001, workers)
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run_command(["report", "all", "--against", "dgl", "--json", *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_paired_verdict(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = report(capsys)["tables"]["verdicts"]["rows"]
    of = {row["quantity"]: row for row in rows}
    assert of["acc/test %"]["verdict"] == "equal within 0.5 points"
    assert of["acc/test %"]["estimate"] == pytest.approx(-0.1, abs=1e-9)
    assert of["epoch s"]["verdict"] == "differs" and of["epoch s"]["estimate"] == pytest.approx(1.51, abs=1e-3)
    assert of["epoch s"]["95 % interval"]["low"] > 1.4 and of["epoch s"]["pairs"] == 3
    answer, *_ = report(capsys)["tables"]["answer"]["rows"]
    assert answer["fastest"] == "dgl" and "gsplit 1.51x" in answer["others take"]


def test_the_sentence_comes_first_and_each_system_is_described(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = report(capsys)["tables"]
    first, *others = tables.values()
    assert first["heading"].startswith("Fastest: dgl") and not any(table["heading"] for table in others)
    assert ("settings" in tables) == (len(tables["answer"]["rows"]) > 1)
    caption = tables["answer"]["caption"]
    assert "dgl: DGL's data-parallel training on gnnexp's kernels, with host features. gsplit: GSplit: " in caption


def test_json_has_its_schema_and_csv_and_parquet_its_numbers(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--csv", "--parquet", "--out", "out")
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    for name, table in document["tables"].items():
        csv, parquet = pd.read_csv(f"out/{name}.csv"), pd.read_parquet(f"out/{name}.parquet")
        assert list(csv.columns) == list(parquet.columns) and len(csv) == len(table["rows"])
        for place, row in enumerate(table["rows"]):
            for header, cell in row.items():
                for field, value in cell.items() if isinstance(cell, dict) else [("", cell)]:
                    column = f"{header} {field}".strip()
                    for frame in (csv, parquet):
                        read = frame[column][place]
                        if value is None:  # a dash among texts
                            same = read == "–" or pd.isna(read)
                        else:
                            same = str(read) == str(value) or float(read) == value
                        assert same, (name, column, read, value)


def test_one_seed_has_the_form_of_three(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three = report(capsys, "--csv", "--out", "out")["tables"]["table"]["rows"][0]
    header = Path("out/table.csv").read_text().splitlines()[0]
    for seed in (1, 2):
        for folder in (made / "all").glob(f"*-{seed}"):
            shutil.rmtree(folder)
    document = report(capsys, "--csv", "--out", "out")
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    one = document["tables"]["table"]["rows"][0]
    assert {key: type(value) for key, value in one.items()} == {key: type(value) for key, value in three.items()}
    assert one["epoch s"] == {"mean": 0.1, "half_width": None, "min": 0.1, "max": 0.1, "n": 1}
    assert Path("out/table.csv").read_text().splitlines()[0] == header


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex (Debian: texlive-latex-recommended)")
def test_latex_prints_the_numbers_of_json(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--latex", "--out", "out")
    text = Path("out/table.tex").read_text()
    names = [name for name in re.findall(r"\\newcommand\{\\(\w+)\}", text) if not name.endswith(("Caption", "Table"))]
    lines = "\n".join(f"\\typeout{{[{name}=\\{name}]}}" for name in names)
    others = [name for name in document["tables"] if name != "table"]
    inputs = "".join(f"\\input{{{name}.tex}}" for name in ("table", *others))
    tables = " ".join(f"\\out{command_name(name)}Table" for name in others)
    Path("out/main.tex").write_text(
        f"\\documentclass{{article}}\\usepackage{{booktabs,siunitx}}{inputs}\\begin{{document}}"
        f"\\outTable {tables} {lines}\\end{{document}}"
    )
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "main.tex"]
    done = subprocess.run(command, cwd="out", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    printed = dict(re.findall(r"\[(\w+)=([^]]*)\]", done.stdout.replace("\n", "")))
    for row in document["tables"]["table"]["rows"]:
        for header in ("acc/test %", "epoch s"):
            named = command_name(f"{row['system']} {row.get('workers', '')}")
            start = f"out{named}{command_name(header)}"
            for field, ending in FIELDS.items():
                assert float(printed[start + ending]) == pytest.approx(
                    row[header][field], abs=5.1e-3 if "%" in header else 5.1e-5
                )
