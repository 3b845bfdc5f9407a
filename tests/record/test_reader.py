"""Parquet files of strangers: whatever they claim, they end in an error, in little memory, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.errors import DataError
from gnnexp.record.columnar import Records, write_records
from gnnexp.record.importing import unpack_records
from gnnexp.record.reader import rows

RUN = "runs/gift/one"


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    write_job(tmp_path / "made")
    write_epochs(tmp_path / "made", 3)
    write_result(tmp_path / "made")
    return dict(json.loads((tmp_path / "made" / "result.json").read_text()))


def refused(file: Path, match: str = "x.parquet") -> None:
    with pytest.raises(DataError, match=match):
        unpack_records(file, file.parent / "there")
    assert not (file.parent / "there").exists()


def test_rows_come_as_they_were_written(tmp_path: Path, good: dict[str, Any]) -> None:
    state = {"name": "gift", "cases": []}
    write_records(Records({"gift": state}, {RUN: good}), tmp_path / "x.parquet")
    with (tmp_path / "x.parquet").open("rb") as opened:
        found = {row.name: row.read(1 << 20) for row in rows(opened)}
    assert {name: json.loads(content) for name, content in found.items()} == {
        "runs/sweeps/gift.json": state,
        f"{RUN}/result.json": good,
    }


@pytest.mark.parametrize(
    "run", ["runs/../..", "/etc", "runs/./a", "runs/a\nb", "runs/a\tb", "runs/a\0b", "runs/.a", ""]
)
def test_a_name_that_leads_elsewhere(tmp_path: Path, good: dict[str, Any], run: str) -> None:
    write_records(Records({}, {RUN: good, run: good}), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", "no file of a record")


def table(file: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table(columns), file)
    return file


def test_rows_that_are_no_records(tmp_path: Path, good: dict[str, Any]) -> None:
    text, file = json.dumps(good), tmp_path / "x.parquet"
    null = json.dumps({**good, "epochs": [{**good["epochs"][0], "metrics": {"loss/train": None}}]})
    refused(table(file, name=[f"{RUN}/result.json"] * 2, record=[text] * 2), "twice")
    refused(table(file, name=[None], record=[text]))
    refused(table(file, name=[7], record=[text]))
    refused(table(file, name=[f"{RUN}/result.json"], record=[None]))
    refused(table(file, name=[f"{RUN}/result.json"], record=["[" * 100_000]))
    refused(table(file, name=[f"{RUN}/result.json"], record=[null]), "loss/train")
    refused(table(file, **{"name": [f"{RUN}/result.json"], "record": [null], "loss/train": [["text"]]}))
    refused(table(file, name=[], record=[]), "no run")


def test_damaged_and_cut(tmp_path: Path, good: dict[str, Any]) -> None:
    file = tmp_path / "x.parquet"
    write_records(Records({}, {RUN: good}), file)
    whole = file.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2], whole[:-8], whole[8:]):
        file.write_bytes(content)
        refused(file, "must be a whole file of `gnnexp export`")


@pytest.mark.slow
def test_a_file_takes_little_memory_whatever_it_claims(tmp_path: Path) -> None:
    """Less than 100 kB that unpack to 384 MiB, twice in memory: the process that reads has no room for it."""
    file = tmp_path / "x.parquet"
    text = pa.array([" " * (384 << 20)])
    pq.write_table(pa.table({"name": [f"{RUN}/result.json"], "record": text}), file, compression="zstd")
    assert file.stat().st_size < 100_000
    refused(file, "MemoryError")


def test_no_more_comes_of_a_file_than_its_size_allows(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    names = [f"runs/gift/{number}/result.json" for number in range(4)]
    pq.write_table(pa.table({"name": names, "record": [json.dumps("x" * (1 << 20))] * 4}), file, compression="zstd")
    with file.open("rb") as opened, pytest.raises(ValueError, match="unpacks to more"):
        list(rows(opened))
