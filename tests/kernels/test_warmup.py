"""Set-up compiles every width of unweighted sums, and throws cached kernels away when any source is newer."""

import os
from pathlib import Path

from compiled_kernels import LIST

from gnnexp.kernels.rows.layout import layout, max_width
from gnnexp.kernels.versions import pieces, read_versions
from gnnexp.kernels.warmup import FIRST, remove_stale, tasks


def test_every_width_of_a_sum_is_compiled_once() -> None:
    sums = [layout(width, 4) for kind, heads, width in tasks() if kind == "sum" and heads == 0]
    assert len(sums) == len(set(sums))
    assert {layout(width, 4) for width in range(1, max_width(4) + 1)} == set(sums)


def test_cached_kernels_are_dropped_when_any_source_is_newer(tmp_path: Path) -> None:
    (tmp_path / "rows" / "__pycache__").mkdir(parents=True)
    cached = [tmp_path / "rows" / "__pycache__" / name for name in ("a.f.nbi", "a.f.1.nbc")]
    inlined = tmp_path / "b.py"
    for moment, file in enumerate([tmp_path / "rows" / "a.py", inlined, *cached]):
        file.touch()
        os.utime(file, (moment, moment))
    assert remove_stale(tmp_path) == 0 and all(file.exists() for file in cached)
    os.utime(inlined, (10, 10))
    assert remove_stale(tmp_path) == 2 and not any(file.exists() for file in cached)
    assert remove_stale(tmp_path) == 0 and inlined.exists()


def test_every_kernel_of_a_list_is_in_one_piece() -> None:
    for file in (FIRST, LIST):
        assert sorted(version for piece in pieces(read_versions(file)) for version in piece) == read_versions(file)
