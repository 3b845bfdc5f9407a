"""Classes are found by the names that they had, and keys are made with the first ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.experiment.build import build
from gnnexp.experiment.locate import locate
from gnnexp.provenance import older
from gnnexp.provenance.code import Code, modules_of
from gnnexp.provenance.run_key import run_key

RMAT = f"{Rmat.__module__}.Rmat"
FORMER = "gnnexp.once.here.Rmat"


@pytest.fixture(autouse=True)
def _moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older, "MOVED", {FORMER: RMAT})


def test_an_old_name_leads_to_the_class() -> None:
    assert locate(FORMER) is locate(RMAT) is Rmat
    assert modules_of({"dataset": {"_target_": FORMER}}) == [Rmat.__module__]


def test_a_move_changes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    now = compose(["dataset=rmat", "tracker=none"]).config
    old = {**now, "dataset": {**now["dataset"], "_target_": FORMER}}
    assert run_key(now, "k", Code({}, {})) == run_key(old, "k", Code({}, {}))
    before = build(now["dataset"], Dataset).key()
    assert build(old["dataset"], Dataset).key() == before
    monkeypatch.setattr(older, "MOVED", {})
    assert run_key(now, "k", Code({}, {})) != run_key(old, "k", Code({}, {})), "the class is a part of the key"
    assert build(now["dataset"], Dataset).key() != before


def test_nested_components_have_their_first_names() -> None:
    node = {"a": [{"_target_": RMAT, "b": {"_target_": RMAT}}], "_target_": Path("no text")}
    found = older.with_first_names(node)
    assert found["a"] == [{"_target_": FORMER, "b": {"_target_": FORMER}}] and found["_target_"] == Path("no text")
