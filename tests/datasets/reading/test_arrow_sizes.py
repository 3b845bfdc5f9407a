"""Sizes of batches in Arrow files are those that pyarrow unpacks to."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc

from gnnexp.datasets.reading.arrow_sizes import unpacked_sizes
from gnnexp.datasets.tables import file_bytes
from gnnexp.datasets.tables.file_bytes import refuse_broken
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.errors import DataError

ROWS = 1000


def table() -> pa.Table:
    names = pa.array([f"name {number % 7}" for number in range(ROWS)])
    return pa.table({"a": np.zeros(ROWS, np.int64), "b": names.dictionary_encode(), "c": names})


@pytest.mark.parametrize("packing", ["zstd", "lz4"])
def test_sizes_are_those_of_the_buffers(packing: str, tmp_path: Path) -> None:
    feather.write_feather(table(), tmp_path / "a.feather", compression=packing, chunksize=400)
    content = (tmp_path / "a.feather").read_bytes()
    dictionaries, batches = unpacked_sizes(content)
    file = ipc.open_file(pa.py_buffer(content))
    buffers = [
        sum(one.size for column in file.get_batch(number).columns for one in column.buffers() if one is not None)
        for number in range(file.num_record_batches)
    ]
    assert len(batches) == 3 and len(dictionaries) == 1
    assert sum(dictionaries) > 7 * 6
    for found, real in zip(batches, buffers, strict=True):
        assert found <= real < found + 64 * 12  # a buffer is a multiple of 64 bytes


def test_without_compression_a_batch_is_a_map_of_the_file(tmp_path: Path) -> None:
    feather.write_feather(table(), tmp_path / "a.feather", compression="uncompressed")
    assert unpacked_sizes((tmp_path / "a.feather").read_bytes()) == ([0], [0])


@pytest.mark.parametrize("cut", [0, 8, 200])
def test_damaged_metadata(cut: int, tmp_path: Path) -> None:
    feather.write_feather(table(), tmp_path / "a.feather")
    with pytest.raises((ValueError, struct.error)):
        unpacked_sizes((tmp_path / "a.feather").read_bytes()[:cut])


def test_what_unpacks_to_more_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feather.write_feather(table(), tmp_path / "a.feather", compression="zstd")
    files = TableFiles("dataset.nodes", (tmp_path / "a.feather",), "arrow")
    refuse_broken(files)
    monkeypatch.setattr(file_bytes, "unpacked_sizes", lambda _: ([1 << 59], [1 << 59]))
    with pytest.raises(DataError, match=r"a\.feather: unpacked batches.*GiB"):
        refuse_broken(files)
