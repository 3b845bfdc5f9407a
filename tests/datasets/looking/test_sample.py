"""Large tables are looked at by a sample, which says so; small limits stand for large tables."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from gnnexp.cli.main import run_command

ROWS = 20_000


def looked(capsys: Any, *words: str) -> tuple[int, dict[str, Any], str]:
    code = run_command(["data", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.strip() else {}, err


def edges() -> pa.Table:
    draw = np.random.default_rng(0)
    return pa.table({"src": draw.integers(1000, 9999, ROWS), "dst": draw.integers(1000, 9999, ROWS)})


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3000)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, str(path), chunksize=3000)
    elif ".jsonl" in path.name:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        text = table.to_pandas().to_csv(index=False, sep="\t" if ".tsv" in path.name else ",").encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize("file", ["e.csv", "e.tsv", "e.csv.gz", "e.jsonl", "e.parquet", "e.feather"])
def test_rows_are_counted_or_estimated(file: str, tmp_path: Path, capsys: Any) -> None:
    write(edges(), tmp_path / file)
    code, found, err = looked(capsys, str(tmp_path / file), "--sample", "50000")
    assert code == 0, err
    exact = file.endswith(("parquet", "feather"))
    assert found["sampled"] and found["exact"] == exact and 0 < found["rows_read"] <= ROWS + 1
    assert abs(found["edges"] - ROWS) <= (0 if exact else 0.1 * ROWS)
    assert found["vertices"] is None and found["duplicates"] is None and found["components"] is None
    assert f"from a sample of {found['rows_read']:,} rows" in err
    _, whole, _ = looked(capsys, str(tmp_path / file), "--sample", "50000", "--whole")
    assert not whole["sampled"] and whole["edges"] == ROWS and whole["run"] == found["run"]


def test_a_sample_gives_the_command_of_the_whole(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "links").mkdir()
    for shard in range(3):
        write(edges(), tmp_path / "links" / f"part-{shard}.parquet")
    ids = np.arange(1000, 10_000)
    nodes = pa.table(
        {
            "id": ids,
            "y": [("spam", "ham")[one % 2] for one in ids],
            "age": ids % 90,
            "split": [("train", "valid", "test")[one % 3] for one in ids],
        }
    )
    write(nodes, tmp_path / "people.csv")
    _, found, err = looked(capsys, str(tmp_path), "--sample", "60000")
    assert found["sampled"], err
    assert found["edges"] == 3 * ROWS and abs(found["vertices"] - ids.size) < 0.1 * ids.size and not found["exact"]
    assert found["names"]["classes"] == ["ham", "spam"] and found["features"] == 1
    _, whole, _ = looked(capsys, str(tmp_path), "--whole")
    assert whole["run"] == found["run"] and "dataset.standardize=true" in found["run"]
    assert "dataset.edges=links" in found["run"] and f"dataset.path={tmp_path}" in found["run"]


def test_types_are_found_in_a_sample(capsys: Any) -> None:
    odd = str(Path(__file__).parents[2] / "data" / "odd" / "two_types")
    _, found, err = looked(capsys, odd, "--sample", "1500")
    assert found["sampled"] and found["rows_read"] < 216, err
    assert found["run"] == looked(capsys, odd)[1]["run"]


def test_cells_with_line_breaks_are_not_cut(tmp_path: Path, capsys: Any) -> None:
    lines = "".join(f'"a\n{one % 50}","b, {one}"\n' for one in range(5000))
    (tmp_path / "e.csv").write_text("from,to\n" + lines)
    code, found, err = looked(capsys, str(tmp_path), "--sample", "10000")
    assert code == 0 and found["sampled"], err


def test_what_has_no_parts_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "e.json").write_text(json.dumps(edges().to_pylist()))
    code, _, err = looked(capsys, str(tmp_path), "--sample", "10000")
    assert code == 2 and "--whole" in err
    assert looked(capsys, str(tmp_path), "--sample", "10000", "--whole")[1]["edges"] == ROWS
    code, _, err = looked(capsys, str(tmp_path), "--sample", "10000000", "--picture", str(tmp_path / "p.png"))
    assert code == 0, err
    write(edges(), tmp_path / "e.json.csv")
    (tmp_path / "e.json").unlink()
    code, _, err = looked(capsys, str(tmp_path), "--sample", "10000", "--picture", str(tmp_path / "p2.png"))
    assert code == 2 and "--picture" in err


def test_a_broken_file_is_named(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "e.parquet").write_bytes(b"PAR1" + b"x" * 20_000)
    code, _, err = looked(capsys, str(tmp_path), "--sample", "10000")
    assert code == 2 and "e.parquet" in err and "cannot be read" in err
