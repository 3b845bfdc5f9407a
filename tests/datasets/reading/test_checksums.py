"""Published files are known by their bytes, and others are marked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.datasets import base
from gnnexp.datasets.published.aminer import Aminer
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.datasets.published.triples import Triples
from gnnexp.datasets.reading.checksums import origin_of, published_files
from gnnexp.errors import DataError

Find = Callable[[str], Path]


def digests(dataset: str, **changed: str) -> dict[Path, str]:
    """Those of the table, as files of a folder."""
    return {
        Path("x") / one.file: changed.get(one.file.rpartition(".")[2], one.sha256 or "of a file at hand")
        for one in published_files()
        if one.dataset == dataset
    }


def test_the_table_is_sound() -> None:
    files = [(one.dataset, one.file) for one in published_files()]
    assert len(set(files)) == len(files)
    assert all(len(one.sha256) in (0, 64) and one.source for one in published_files())
    assert len({one.source for one in published_files() if one.dataset == "cora"}) == 1


@pytest.mark.parametrize("dataset", sorted({one.dataset for one in published_files()}))
def test_published_bytes_are_named(dataset: str) -> None:
    origin = origin_of(digests(dataset), "mine")
    assert origin.dataset == dataset and origin.source in origin.text
    assert list(origin.unlisted) == [one.file for one in published_files() if one.dataset == dataset and not one.sha256]


def test_a_single_file_is_known_under_any_name() -> None:
    (one,) = (one for one in published_files() if one.dataset == "tolokers")
    assert origin_of({Path("y/renamed.npz"): one.sha256}, "renamed").dataset == "tolokers"


def test_one_other_file_makes_it_another_copy() -> None:
    origin = origin_of(digests("cora", graph="0" * 64), "cora")
    assert not origin.is_known and list(origin.differing) == ["ind.cora.graph"]
    assert "not the published cora, or another copy of it (ind.cora.graph)" in origin.text


def test_exchanged_files_are_not_the_published_ones() -> None:
    found = digests("cora")
    first, second = Path("x/ind.cora.ty"), Path("x/ind.cora.ally")
    found[first], found[second] = found[second], found[first]
    assert not origin_of(found, "cora").is_known


def test_a_file_that_nobody_published_is_no_part_of_a_published_data_set() -> None:
    assert not origin_of({**digests("aminer"), Path("x/ps.txt"): "0" * 64}, "mine").is_known
    assert not origin_of({Path("x/labels.npy"): "1" * 64}, "mine").is_known
    assert "gnnexp has checksums" in origin_of({Path("x/a"): "1" * 64}, "mine").text
    assert not origin_of({}, "cora").is_known


def test_verify_refuses_what_is_not_known(copied: Find, tmp_path: Path) -> None:
    folder = copied("cora")
    assert Planetoid(path=str(folder), verify=True).load().num_nodes == 2708
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("cora", "mine"))
    dataset = Planetoid(path=str(folder), verify=True)
    assert dataset.name == "mine"
    for read in (dataset.load, dataset.key):
        with pytest.raises(DataError, match=r"bytes not known.*\n.*dataset\.verify=false"):
            read()
    assert "bytes not known" in Planetoid(path=str(folder)).load().notes[-1]


def test_changed_bytes_load_and_are_marked(copied: Find) -> None:
    folder = copied("aminer")
    assert Aminer(path=str(folder)).load().notes == (
        "vertices: 6564 papers, then 13329 authors, then 35890 references",
    )
    with (folder / "pa.txt").open("a") as file:
        file.write("0\t0\n")
    assert "not the published aminer, or another copy of it (pa.txt)" in Aminer(path=str(folder)).load().notes[-1]
    with pytest.raises(DataError, match=r"pa\.txt"):
        Aminer(path=str(folder), verify=True).key()


def test_bytes_are_compared_whenever_somebody_asks(copied: Find) -> None:
    folder = copied("cora")
    dataset = Planetoid(path=str(folder))
    dataset.key()
    assert not dataset.origin_notes()
    with (folder / "ind.cora.test.index").open("a") as file:
        file.write("\n")
    assert dataset.origin_notes()


@pytest.mark.parametrize("known", [True, False])
def test_verify_changes_no_key(known: bool, copied: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only refuses bytes; the bytes themselves are in the key."""
    monkeypatch.setattr(base, "code_key", lambda cls: "")
    folder = copied("cora")
    if not known:
        (folder / "ind.cora.test.index").open("a").write("\n")
    dataset = Planetoid(path=str(folder))
    assert "verify" not in dataset.options()
    if known:
        assert dataset.key() == Planetoid(path=str(folder), verify=True).key()


def test_a_knowledge_graph_is_known_by_its_archive(real: Find, tmp_path: Path) -> None:
    archive = next(real("fb15k-237").glob("*.tar.gz"))
    shutil.copyfile(archive, tmp_path / "mine.tar.gz")
    origin = Triples(name="mine", path=str(tmp_path / "mine.tar.gz")).origin()
    assert origin is not None and origin.dataset == "fb15k-237"


def test_large_files_are_not_read_to_be_named(copied: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied("cora")
    monkeypatch.setattr(base, "LARGEST", 1 << 17)
    origin = Planetoid(path=str(folder)).origin()
    assert origin is not None and not origin.is_known
    assert {*origin.differing} == {one.name for one in folder.iterdir() if one.stat().st_size > 1 << 17} != set()
