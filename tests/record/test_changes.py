"""Whether the data of a run have changed: by the bytes of the files, and with the code that may read them otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.provenance.code import package_digest
from gnnexp.provenance.recorded import RESULT_VERSION
from gnnexp.record.attempts import RANKS, note
from gnnexp.record.changes import changed_data


@pytest.fixture
def dataset(tmp_path: Path) -> EdgeList:
    np.save(tmp_path / "edges.npy", [[0, 1], [1, 2]])
    return EdgeList(path=str(tmp_path / "edges.npy"), split="none")


def recorded(dataset: EdgeList) -> dict[str, object]:
    return {"dataset_key": dataset.key(), "result_version": RESULT_VERSION}


def executed(run_dir: Path, digest: str) -> None:
    note(run_dir, RANKS, nodes=[], code={"own": {}, "gnnexp": digest}, from_start=True)


def test_the_same_bytes_have_not_changed(dataset: EdgeList, tmp_path: Path) -> None:
    record = recorded(dataset)
    assert changed_data(tmp_path, record, dataset) == ""
    (tmp_path / "edges.npy").rename(tmp_path / "away")
    assert changed_data(tmp_path, record, dataset) == "", "files that are not here cannot be compared"


@pytest.mark.parametrize("same_code", [True, False])
def test_other_bytes_are_said_and_other_code_too(dataset: EdgeList, tmp_path: Path, same_code: bool) -> None:
    record = recorded(dataset)
    executed(tmp_path, package_digest() if same_code else "another")
    np.save(tmp_path / "edges.npy", [[0, 2], [1, 2]])
    said = changed_data(tmp_path, record, dataset)
    assert said.startswith(
        "the data of edge_list have changed"
        if same_code
        else "the data of edge_list or the code that reads them have changed"
    )
    assert f"key {str(record['dataset_key'])[:12]}, today {dataset.key()[:12]}" in said


def test_keys_of_another_form_are_not_compared(dataset: EdgeList, tmp_path: Path) -> None:
    assert changed_data(tmp_path, {"dataset_key": "0" * 64, "result_version": RESULT_VERSION - 1}, dataset) == ""
    assert changed_data(tmp_path, {"result_version": RESULT_VERSION}, dataset) == ""
