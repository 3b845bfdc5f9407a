"""The kernel that reads rows over the link: interpreted, its rows are right; compiled, it fits into registers."""

from __future__ import annotations

import pytest
import torch

from gnnexp.ops.backends import has_triton, is_interpreted

compiler = pytest.mark.skipif(not has_triton() or is_interpreted(), reason="needs Triton's compiler")
interpreter = pytest.mark.skipif(not (has_triton() and is_interpreted()), reason="run by tests/kernels/test_triton.py")


@interpreter
@pytest.mark.parametrize("ids_of", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("kind", "width"),
    [(torch.float32, 1), (torch.float32, 100), (torch.float64, 13), (torch.int16, 515), (torch.int16, 0)],
    ids=str,
)
def test_rows_come_from_where_they_are(kind: torch.dtype, width: int, ids_of: torch.dtype) -> None:
    from gnnexp.kernels.cuda.fetch import LEFT_OUT, fetch_rows

    generator = torch.Generator().manual_seed(width)
    rows = torch.randint(-99, 99, (50, width), generator=generator).to(kind)
    held = rows[torch.tensor([7, 3, 40])] + 1  # other values, to tell where a row came from
    table = torch.full((50,), -1, dtype=torch.int32)
    table[torch.tensor([7, 3, 40])] = torch.arange(3, dtype=torch.int32)
    table[11] = LEFT_OUT
    for ids in (torch.randint(0, 50, (77,), generator=generator), torch.tensor([7, 11, 3, 11, 49]), torch.empty(0)):
        ids = ids.to(ids_of)
        out = torch.empty(ids.numel(), width, dtype=kind)
        fetch_rows(rows, ids, out)
        assert out.equal(rows.index_select(0, ids))
        expected = torch.full_like(out, 55)
        for place, row in enumerate(ids.tolist()):
            if row != 11:
                expected[place] = rows[row] if table[row] < 0 else held[table[row]]
        fetch_rows(rows, ids, out.fill_(55), table, held)
        assert out.equal(expected), "a row that is left out keeps what was there"


@compiler
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("kind", ["i16", "fp32", "fp64"])
@pytest.mark.parametrize(("width", "cached"), [(100, True), (100, False), (602, True)])
def test_rows_stay_in_registers(architecture: int, kind: str, width: int, cached: bool) -> None:
    from triton_offline import compiled

    from gnnexp.kernels.cuda.fetch import fetch_kernel, tile_of_rows

    types = {
        "ids": "*i32",
        "table": "*i32" if cached else "*i64",
        **dict.fromkeys(("held", "rows", "out"), f"*{kind}"),
        "num_rows": "i32",
        "width": "i32",
    }
    size, columns = tile_of_rows(width)
    found = compiled(fetch_kernel, types, {"CACHED": cached, "ROWS": size, "COLS": columns}, architecture, 4)
    assert found.registers <= 128 and found.stack == found.local == 0
    assert found.ptx.count("ld.global") and "atom" not in found.ptx
