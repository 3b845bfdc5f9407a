"""Every pair of what a run can choose, of every way and preset, is trained and compared, or refused before it starts.

Earlier bugs sat in combinations that no test named: the cases here are drawn (`tests/support/matrix`), and kept in
`matrix_cases.csv`; `matrix_refused.csv` has the pairs that no run may have, and why.
"""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
import torch
from matrix.axes import AXES, Case, name_of, named
from matrix.configs import config_of, refusal
from matrix.cover import all_pairs, covered, pairs_of
from matrix.files import drawn, read_cases, read_refused
from matrix.running import check_case

from gnnexp.comm.shuffle import ShuffleIndex
from gnnexp.testing.ranks import RankPools

FIX = "write the files again: PYTHONPATH=tests/support python -m matrix"
ON_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"))


# Presets of paradigms that are no way of their own.
ALONE = ("dgl", "dgl_full_graph", "dgl_reference", "fastsample", "sancus", "sdt_gnn")


def _trained_elsewhere(case: Case) -> bool:
    """A preset on the CPU: `tests/frozen` trains each on two ranks, and knows every loss and every count."""
    kind, _, preset = named(case)["way"].partition("=")
    return kind == "system" and named(case)["device"] == "cpu" and preset not in ALONE


def _imports_dgl_often(case: Case) -> bool:
    """Every rank imports DGL, which takes seconds: its kernels are in cases of fewer ranks too."""
    return named(case)["kernel"] == "dgl" and named(case)["ranks"] in ("3", "4") and named(case)["device"] == "cpu"


def _parameters() -> list[Any]:
    def marks(case: Case, quick: bool) -> list[Any]:
        quick = quick and not (_trained_elsewhere(case) or _imports_dgl_often(case))
        return [*(ON_GPU if named(case)["device"] == "cuda" else ()), *(() if quick else (pytest.mark.slow,))]

    return [pytest.param(case, id=name_of(case), marks=marks(case, quick)) for case, quick in read_cases().items()]


@pytest.mark.parametrize("case", _parameters())
def test_a_case_agrees_with_its_reference(ranks, case):
    if ".dgl." in config_of(case)["sampler"]["_target_"]:
        pytest.importorskip("dgl")  # a machine with a GPU may have no DGL
    check_case(ranks, case)


# --- the files -------------------------------------------------------------------------------------------------------
def test_every_pair_is_in_a_case_or_refused():
    have = set().union(*(pairs_of(AXES, case) for case in read_cases()))
    missing = set(all_pairs(AXES)) - have - set(read_refused())
    assert not missing, f"{len(missing)} pairs are in no case: {sorted(missing)[:5]}; {FIX}"
    assert not have & set(read_refused())


@pytest.mark.parametrize("cases", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_no_case_is_refused(cases):
    """The others are trained with the mark `slow`, which a refusal ends."""
    refused = {
        name_of(case): why
        for case, quick in read_cases().items()
        if (quick or cases == "all") and (why := refusal(case))
    }
    assert not refused, FIX


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_files_are_as_drawn():
    """Whatever a check refuses now, or takes now, changes them."""
    assert drawn() == (read_cases(), read_refused()), FIX


# --- controls --------------------------------------------------------------------------------------------------------
def test_pairs_of_small_axes_are_covered():
    axes = {"a": ("1", "2", "3"), "b": ("x", "y"), "c": ("u", "v")}
    cases, refused = covered(axes, lambda case: "no" if case[:2] == ("3", "y") else "", 0)
    assert refused == {(("a", "3"), ("b", "y")): "no"} and len(cases) < 12
    assert set(all_pairs(axes)) - set(refused) == set().union(*(pairs_of(axes, case) for case in cases))


def _gradients_stay(self: ShuffleIndex, rows: Any, comm: Any, tag: str) -> Any:
    return rows[: self.num_local]


def test_a_mistake_would_be_seen(ranks):
    """Gradients of rows that were fetched stay where they are: a pool of its own, whose ranks make the mistake."""
    plain = {"way": "split", "ranks": "2", "batches": "several"}
    case = tuple(plain.get(axis, values[0]) for axis, values in AXES.items())
    broken = RankPools()
    broken(2).run(_break)
    with pytest.raises(AssertionError, match="differs by"):
        check_case(lambda size: broken(size) if size == 2 else ranks(size), case)
    broken.close()


def _break() -> None:
    assert os.environ["RANK"] in "01"
    patch.object(ShuffleIndex, "scatter_add_home", _gradients_stay).start()
