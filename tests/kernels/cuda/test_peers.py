"""The kernel that reads rows of several GPUs: interpreted, its rows are right; compiled, it fits into registers."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.ops.backends import has_triton, is_interpreted

compiler = pytest.mark.skipif(not has_triton() or is_interpreted(), reason="needs Triton's compiler")
interpreter = pytest.mark.skipif(not (has_triton() and is_interpreted()), reason="run by tests/kernels/test_triton.py")
KINDS, IDS = (torch.float32, torch.float64, torch.int16), (torch.int32, torch.int64)


@interpreter
@settings(max_examples=25, deadline=None)
@given(
    num_nodes=st.integers(1, 60),
    members=st.integers(1, 5),
    cached=st.integers(0, 60),
    width=st.sampled_from((0, 1, 13, 100, 515)),
    kind=st.sampled_from(KINDS),
    ids_of=st.sampled_from(IDS),
    place_of=st.sampled_from(IDS),
    number=st.sampled_from((0, 1, 17, 77)),
    past=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows_come_from_the_member_that_has_them(
    num_nodes, members, cached, width, kind, ids_of, place_of, number, past, seed
) -> None:
    from gnnexp.kernels.cuda.peers import fetch_from_peers

    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(-99, 99, (num_nodes, width), generator=generator).to(kind)
    order = torch.randperm(num_nodes, generator=generator)[:cached]
    held = [(rows[order[member::members]] + member + 1).contiguous() for member in range(members)]  # tells who has it
    table = torch.full((num_nodes,), -1, dtype=place_of)
    table[order] = torch.arange(order.numel(), dtype=place_of)
    ids = torch.randint(0, num_nodes, (number,), generator=generator).to(ids_of)
    out = torch.full((number, width), 55, dtype=kind)
    bases, own = torch.tensor([one.data_ptr() for one in held]), seed % members
    counts = fetch_from_peers(ids, table, bases, own, out, rows if past else None)
    expected, found = torch.full_like(out, 55), [0, 0, 0, 0]
    for place, vertex in enumerate(ids.tolist()):
        dealt = int(table[vertex])
        if dealt >= 0:
            expected[place] = held[dealt % members][dealt // members]
            found[int(dealt % members != own)] += 1
        elif past:
            expected[place] = rows[vertex]
            found[2] += 1
    assert out.equal(expected)
    assert counts.sum(0).tolist() == found


@compiler
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("kind", ["i16", "fp32", "fp64"])
@pytest.mark.parametrize(("width", "members", "past"), [(100, 4, True), (100, 8, False), (602, 3, True)])
def test_rows_stay_in_registers(architecture: int, kind: str, width: int, members: int, past: bool) -> None:
    from triton_offline import compiled

    from gnnexp.kernels.cuda.fetch import tile_of_rows
    from gnnexp.kernels.cuda.peers import peer_kernel

    types = {
        "ids": "*i32",
        "table": "*i32",
        "bases": "*i64",
        "rows": f"*{kind}",
        "out": f"*{kind}",
        "counts": "*i64",
        "num_rows": "i32",
        "width": "i32",
        "own": "i32",
    }
    size, columns = tile_of_rows(width)
    found = compiled(
        peer_kernel,
        types,
        {"MEMBERS": members, "PAST": past, "PLACES": 64, "ROWS": size, "COLS": columns},
        architecture,
        4,
    )
    assert found.registers <= 128 and found.stack == found.local == 0
    wide = "v2.b64" if kind == "fp64" else "v4.b32"
    assert f"ld.global.{wide}" in found.ptx, "16 bytes of a peer's row in one load"
    # Triton 3.9.0 writes additions whose result nobody reads as `red`, 3.7.1 as `atom` with a register of no use.
    results = re.findall(r"atom\.global\S*\.add\S* (%\w+),", found.ptx)
    assert (results or "red.global" in found.ptx) and found.ptx.replace("atomic", "").count("atom") == len(results)
    assert not [one for one in results if re.search(rf"{one}\b", re.sub(rf"(mov|atom)\S* {one},", "", found.ptx))]
