"""Numbers of vertices past 2^31, which no table of a test is large enough for."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gnnexp.datasets.tables.edges import ENDS, EdgeColumns
from gnnexp.datasets.tables.engine import engine
from gnnexp.datasets.tables.files import find_files
from gnnexp.datasets.tables.ids import HeldTexts
from gnnexp.datasets.tables.numbering import number_edges
from gnnexp.datasets.tables.raw_edges import SpooledEdges
from gnnexp.datasets.tables.spool import Spool
from gnnexp.datasets.tables.written import bytes_of
from gnnexp.kernels.tables.texts import Dictionary


class Many(HeldTexts):
    """Claims to have 2^31 - 1 vertices."""

    @property
    def count(self) -> int:
        return 2**31 - 1


@pytest.mark.parametrize("first", [5, 2**31 - 1, 2**33])
def test_numbers_of_a_later_type_do_not_wrap_around(first: int, tmp_path: Path) -> None:
    known = Dictionary()
    codes = known.numbers(*bytes_of(pa.array(["c", "a", "b"])))
    ids = Many(known, np.array([1, 2, 0], np.int32), np.array([2, 0, 1], np.int32))
    (tmp_path / "edges.csv").write_text("src,dst\nc,a\n")
    with engine(tmp_path, 1 << 28, 1) as reader:
        table = reader.table(find_files("dataset.edges", tmp_path, "edges.csv"))
        columns = EdgeColumns("edges", table, "src", "dst", ("a", "b"))
        with Spool(tmp_path, "raw", columns.dtypes(np.dtype(np.int32))) as spool:
            spool.append(codes, codes[::-1])
        edges = SpooledEdges(columns, ((0, -1), (0, -1)), {"a": known, "b": known}, spool)
        found, dropped = number_edges(
            reader, edges, {"a": ids, "b": ids}, {"a": 0, "b": first}, tmp_path, 0, drop=False
        )
    assert [found.column(end).tolist() for end in ENDS] == [[2, 0, 1], [first + 1, first, first + 2]]
    assert found.dtypes["destination"] == np.int64 and dropped == 0
