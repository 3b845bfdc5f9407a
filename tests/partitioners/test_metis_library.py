"""METIS's own lines do not mix with gnnexp's, and what gnnexp prints around a call stays in its place."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from gnnexp.errors import RunError
from gnnexp.partitioners import metis_library
from gnnexp.partitioners.metis_library import metis_dtype, part_graph, printed_by_c

Graph = tuple[np.ndarray, np.ndarray, np.ndarray, int, bool]


def small_graphs(count: int) -> Iterator[Graph]:
    """Graphs of 2 to 13 vertices in up to as many parts: METIS prints lines for some of them."""
    draw, dtype = np.random.default_rng(0), metis_dtype()
    for _ in range(count):
        size = int(draw.integers(2, 14))
        linked = np.triu(draw.random((size, size)) < draw.choice([0.1, 0.5, 1]), 1)
        linked[0, 1] = True
        starts = np.concatenate([[0], (linked | linked.T).sum(1).cumsum()]).astype(dtype)
        weights = draw.integers(0, 3, (size, int(draw.integers(1, 4)))).astype(dtype)
        weights[0] = np.maximum(weights[0], 1)
        neighbours = np.nonzero(linked | linked.T)[1].astype(dtype)
        yield starts, neighbours, weights, int(draw.integers(2, size + 1)), bool(draw.integers(2))


def parted(count: int = 400) -> list[list[int]]:
    options = {"imbalance": 0.03, "seed": 0}
    return [
        part_graph(starts, neighbours, weights, None, parts, recursive=recursive, **options)[0].tolist()
        for starts, neighbours, weights, parts, recursive in small_graphs(count)
    ]


def test_its_lines_are_not_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = parted()
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")

    @contextmanager
    def nothing_kept() -> Iterator[list[str]]:
        yield [""]

    monkeypatch.setattr(metis_library, "printed_by_c", nothing_kept)
    assert parted() == quiet
    ctypes.CDLL(None).fflush(None)
    assert "Cannot bisect a graph with 0 vertices" in capfd.readouterr().out, "METIS prints such lines for these graphs"


def test_the_order_of_other_lines_stays(capfd: pytest.CaptureFixture[str]) -> None:
    c = ctypes.CDLL(None)
    c.puts(b"before")
    with printed_by_c() as printed:
        c.puts(b"inside")
    c.puts(b"after")
    c.fflush(None)
    assert printed == ["inside"] and capfd.readouterr().out == "before\nafter\n"


def test_it_works_without_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    quiet, own = parted(5), os.dup(1)
    os.close(1)
    try:
        assert parted(5) == quiet
    finally:
        os.dup2(own, 1)
        os.close(own)


def test_a_failure_names_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    library, options, dtype = metis_library._load()

    def fails(*_: object) -> int:
        ctypes.CDLL(None).puts(b"a reason")
        return -4

    failing = SimpleNamespace(METIS_SetDefaultOptions=library.METIS_SetDefaultOptions, METIS_PartGraphKway=fails)
    monkeypatch.setattr(metis_library, "_load", lambda: (failing, options, dtype))
    starts, neighbours, weights = np.array([0, 1, 2], dtype), np.array([1, 0], dtype), np.ones((2, 1), dtype)
    with pytest.raises(RunError, match="status -4; METIS said: a reason"):
        part_graph(starts, neighbours, weights, None, 2, recursive=False, imbalance=0.03, seed=0)
