from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.tables.spool import Spool

DTYPES = {"id": np.dtype(np.int32), "other": np.dtype(np.int32), "weight": np.dtype(np.float32)}


@given(pieces=st.lists(st.integers(0, 5), max_size=8), held_bytes=st.integers(0, 300), wide_from=st.integers(0, 9))
def test_rows_come_back_in_order_from_memory_and_from_files(
    pieces: list[int],
    held_bytes: int,
    wide_from: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder: Path = tmp_path_factory.mktemp("spool")
    wanted = np.arange(sum(pieces), dtype=np.int64)
    with Spool(folder, "edges", DTYPES, held_bytes) as spool:
        for place, rows in enumerate(pieces):
            if place == wide_from:
                spool.widen(["id"], np.dtype(np.int64))
                wanted[spool.num_rows :] += 2**40
            values = wanted[spool.num_rows : spool.num_rows + rows]
            spool.append(values, values % 2**20, values / 2)
    in_files = sum(path.stat().st_size for path in folder.iterdir())
    assert spool.num_rows == wanted.size and sorted(path.name for path in folder.iterdir()) == [
        "edges.id",
        "edges.other",
        "edges.weight",
    ]
    for name, values in (("id", wanted), ("other", wanted % 2**20), ("weight", (wanted / 2).astype(np.float32))):
        column = spool.column(name)
        assert column.dtype == spool.dtypes[name] and (column == values).all()
    assert sum(other.size for other, _ in spool.chunks(("other", "weight"))) == wanted.size
    assert in_files >= 12 * wanted.size - held_bytes
    spool.remove()
    assert not list(folder.iterdir())


def test_memory_holds_the_first_pieces_and_no_later_ones(tmp_path: Path) -> None:
    piece = np.arange(4, dtype=np.int32)
    with Spool(tmp_path, "edges", {"id": piece.dtype}, held_bytes=40) as spool:
        spool.append(piece)
        spool.append(np.arange(8, dtype=np.int32))  # 48 bytes together
        spool.append(piece)  # it would have room, but its rows are not the next ones
    assert (tmp_path / "edges.id").stat().st_size == 48
    assert spool.column("id").tolist() == [*range(4), *range(8), *range(4)]
