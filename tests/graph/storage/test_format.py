"""The on-disk format: what is written comes back, and nothing damaged is ever opened or costs memory."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import full_graph

from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.arrays import META, read_folder
from gnnexp.graph.storage.format import GraphWriter, open_graph, save_graph
from gnnexp.graph.storage.layout import arrays_of
from gnnexp.graph.validate import validate_graph
from gnnexp.testing.graphs import random_graph


def same(left: Graph, right: Graph) -> bool:
    a, b = arrays_of(left), arrays_of(right)
    scalars = ("name", "notes", "num_classes", "num_features")
    return (
        all(getattr(left, name) == getattr(right, name) for name in scalars)
        and list(a) == list(b)
        and all(
            a[name].dtype == b[name].dtype and torch.equal(a[name].nan_to_num(-7), b[name].nan_to_num(-7)) for name in a
        )
    )


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("verify", ["none", "sizes", "checksums"])
@pytest.mark.parametrize(("sparse", "multilabel"), [(False, False), (True, True)])
def test_round_trip(tmp_path: Path, mmap: bool, verify: str, sparse: bool, multilabel: bool) -> None:
    graph = full_graph(sparse=sparse, multilabel=multilabel)
    save_graph(graph, tmp_path / "a" / "graph")
    assert same(open_graph(tmp_path / "a" / "graph", mmap=mmap, verify=verify), graph)  # type: ignore[arg-type]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["graph"]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 1000))
def test_round_trip_of_any_topology(
    tmp_path_factory: pytest.TempPathFactory, nodes: int, edges: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("graph") / "g"
    graph = random_graph(nodes, edges, seed)
    save_graph(graph, folder)
    assert same(open_graph(folder, verify="checksums"), graph)


def test_opening_maps_instead_of_reading(tmp_path: Path) -> None:
    with GraphWriter(tmp_path / "g") as writer:
        writer.array("indptr", (1_000_001,), np.int64)
        writer.array("indices", (0,), np.int32)
        writer.array("features", (1_000_000, 16), np.float32)[999_999] = 1
        writer.finish_graph(name="wide")
    tracemalloc.start()
    graph = open_graph(tmp_path / "g")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert graph.num_features == 16
    assert torch.equal(graph.features[999_999], torch.ones(16))  # type: ignore[index]
    assert peak < 2 << 20  # the features alone are 64 MB


def test_writer_streams_without_holding_arrays(tmp_path: Path) -> None:
    source = full_graph()
    with GraphWriter(tmp_path / "g") as writer:
        for name, tensor in arrays_of(source).items():
            target = writer.array(name, tuple(tensor.shape), tensor.numpy().dtype)
            for start in range(0, tensor.shape[0], 7):
                target[start : start + 7] = tensor[start : start + 7].numpy()
        writer.finish_graph(name=source.name, num_classes=4, notes=source.notes)
    assert same(open_graph(tmp_path / "g", verify="checksums"), source)


def test_a_graph_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyError), GraphWriter(tmp_path / "g") as writer:
        writer.array("indptr", (3,), np.int64)
        raise KeyError("the generator failed")
    with GraphWriter(tmp_path / "g") as writer:
        writer.array("indptr", (3,), np.int64)  # and never finished
    assert list(tmp_path.iterdir()) == []


@pytest.mark.interpreter
def test_a_killed_writer_leaves_nothing_that_is_taken_for_a_graph(tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np; from pathlib import Path; from gnnexp.graph.storage.format import GraphWriter\n"
        "with GraphWriter(Path(sys.argv[1])) as writer:\n"
        "    writer.array('indptr', (3,), np.int64); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "g")], check=False)
    assert not (tmp_path / "g").exists()
    with pytest.raises(DataError, match=r"meta\.json"):
        open_graph(tmp_path / "g")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_a_graph_is_as_public_as_the_umask_lets_it_be(tmp_path: Path, umask: int) -> None:
    folder, before = tmp_path / "graph", os.umask(umask)
    try:
        for _ in range(2):  # made, and replaced
            save_graph(full_graph(), folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~umask
            assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o666 & ~umask}
    finally:
        os.umask(before)
    assert [item.name for item in tmp_path.iterdir()] == ["graph"]


def test_saving_replaces_a_graph_but_nothing_else(tmp_path: Path) -> None:
    save_graph(random_graph(5, 9, 0), tmp_path / "g")
    save_graph(random_graph(6, 9, 1), tmp_path / "g")
    assert open_graph(tmp_path / "g").num_nodes == 6
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="exists"):
        save_graph(random_graph(5, 9, 0), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "mine"]


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="fix"):
        save_graph(random_graph(5, 9, 0), tmp_path / "file" / "g")


def test_a_full_disk_is_said_before_anything_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="No space left"):
        save_graph(random_graph(5, 9, 0), tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def edit_meta(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        meta = json.loads((folder / META).read_text())
        change(meta)
        (folder / META).write_text(json.dumps(meta))

    return edit


def cut(name: str, keep: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / f"{name}.npy", keep)


def replace_array(name: str, array: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / f"{name}.npy", array, allow_pickle=True)


def set_spec(name: str, key: str, value: object) -> Callable[[Path], None]:
    return edit_meta(lambda meta: meta["arrays"][name].update({key: value}))


def rename_array(old: str, new: str) -> Callable[[Path], None]:
    return edit_meta(lambda meta: meta["arrays"].update({new: meta["arrays"].pop(old)}))


def huge_header(folder: Path) -> None:
    """A .npy 2.0 file that claims a header of 4 GiB."""
    (folder / "labels.npy").write_bytes(b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\xff" + b" " * 100)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no folder": (shutil.rmtree, "meta.json"),
    "no meta": (lambda folder: (folder / META).unlink(), "meta.json"),
    "meta is no JSON": (lambda folder: (folder / META).write_text("{"), "valid JSON"),
    "meta is binary": (lambda folder: (folder / META).write_bytes(b"\xff\xfe\x00"), "valid JSON"),
    "meta is nested deep": (lambda folder: (folder / META).write_text("[" * 100_000), "valid JSON"),
    "meta is a list": (lambda folder: (folder / META).write_text("[1]"), "JSON object"),
    "meta is huge": (lambda folder: (folder / META).write_text(" " * (2 << 20)), "small"),
    "another kind": (edit_meta(lambda meta: meta.update(kind="partition")), "kind"),
    "later schema": (edit_meta(lambda meta: meta.update(schema=99)), "upgrade gnnexp"),
    "schema is a text": (edit_meta(lambda meta: meta.update(schema="1")), "schema"),
    "no arrays": (edit_meta(lambda meta: meta.pop("arrays")), "arrays"),
    "counts are texts": (edit_meta(lambda meta: meta.update(num_nodes="40")), "num_nodes"),
    "negative count": (edit_meta(lambda meta: meta.update(num_classes=-1)), "num_classes"),
    "name is a number": (edit_meta(lambda meta: meta.update(name=3)), "name"),
    "notes are a text": (edit_meta(lambda meta: meta.update(notes="x")), "notes"),
    "path traversal": (rename_array("labels", "../../etc/passwd"), "without any path"),
    "absolute path": (rename_array("labels", "/etc/passwd"), "without any path"),
    "unknown array": (rename_array("labels", "secrets"), "secrets"),
    "missing entry": (edit_meta(lambda meta: meta["arrays"].pop("indices")), "indices"),
    "missing file": (lambda folder: (folder / "indices.npy").unlink(), "indices.npy"),
    "half of sparse features": (edit_meta(lambda meta: meta["arrays"].pop("features_values")), "features_values"),
    "object dtype in meta": (set_spec("labels", "dtype", "|O"), "dtype"),
    "huge size": (set_spec("labels", "shape", [1 << 50]), "labels.npy"),
    "size beyond 64 bits": (set_spec("labels", "shape", [1 << 70]), "shape"),
    "negative size": (set_spec("labels", "shape", [-1]), "shape"),
    "float size": (set_spec("labels", "shape", [40.0]), "shape"),
    "three dimensions": (set_spec("labels", "shape", [40, 1, 1]), "shape"),
    "bad checksum": (set_spec("labels", "sha256", "0123"), "sha256"),
    "spec is a list": (edit_meta(lambda meta: meta["arrays"].update(labels=[])), "labels"),
    "truncated": (cut("indices", 200), "bytes"),
    "truncated header": (cut("indices", 20), "indices.npy"),
    "empty file": (cut("indices", 0), "indices.npy"),
    "too long": (lambda folder: (folder / "labels.npy").open("ab").write(b"more"), "bytes"),
    "wrong dtype": (replace_array("indices", np.zeros(150, np.int64)), "indices.npy"),
    "big endian": (replace_array("labels", np.zeros(40, ">i8")), "labels.npy"),
    "wrong shape": (replace_array("labels", np.zeros(41, np.int64)), "labels.npy"),
    "Fortran order": (replace_array("edge_features", np.asfortranarray(np.zeros((150, 3), np.float32))), "Fortran"),
    "a pickle": (replace_array("labels", np.array([{}], object)), "labels.npy"),
    "huge header": (huge_header, "labels.npy"),
    "not a .npy": (lambda folder: (folder / "labels.npy").write_text("labels"), "labels.npy"),
    "indptr ends elsewhere": (replace_array("indptr", np.zeros(41, np.int64)), "indptr.npy"),
    "counts disagree": (edit_meta(lambda meta: meta.update(num_nodes=39)), "V = 39"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_with_its_fix_and_costs_no_memory(tmp_path: Path, damage: str) -> None:
    save_graph(full_graph(sparse=True), tmp_path / "g")
    harm, word = DAMAGES[damage]
    harm(tmp_path / "g")
    tracemalloc.start()
    with pytest.raises(DataError) as caught:
        open_graph(tmp_path / "g")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert word in str(caught.value)
    assert all(problem.fix and str(tmp_path) in problem.key for problem in caught.value.problems)
    assert peak < 8 << 20  # reading a meta.json of the largest size, and what parsing it takes


@pytest.mark.parametrize("name", ["indices", "features_values", "labels", "train"])
def test_one_flipped_byte_is_found_by_checksums_only(tmp_path: Path, name: str) -> None:
    save_graph(full_graph(sparse=True), tmp_path / "g")
    path = tmp_path / "g" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    open_graph(tmp_path / "g")
    with pytest.raises(DataError, match=rf"{name}\.npy.*\n?.*bytes have changed"):
        open_graph(tmp_path / "g", verify="checksums")


def test_all_damages_are_said_at_once(tmp_path: Path) -> None:
    save_graph(full_graph(), tmp_path / "g")
    for name in ("indices", "labels", "test"):
        os.truncate(tmp_path / "g" / f"{name}.npy", 130)
    with pytest.raises(DataError) as caught:
        open_graph(tmp_path / "g")
    assert [Path(problem.key).stem for problem in caught.value.problems] == ["indices", "labels", "test"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["meta.json", "indptr.npy", "indices.npy", "labels.npy"]),
    st.integers(0, 4000),
    st.integers(1, 255),
)
def test_any_flipped_byte_is_refused_by_checksums(
    tmp_path_factory: pytest.TempPathFactory, file: str, position: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("graph") / "g"
    graph = full_graph()
    save_graph(graph, folder)
    content = bytearray((folder / file).read_bytes())
    content[position % len(content)] ^= flip
    (folder / file).write_bytes(content)
    try:
        opened = open_graph(folder, verify="checksums")
    except DataError:
        return
    # Only free texts and spare counts of meta.json may change unseen; the arrays may not.
    assert file == "meta.json"
    assert all(torch.equal(array, arrays_of(opened)[name]) for name, array in arrays_of(graph).items())


def test_what_is_opened_passes_validation_as_before(tmp_path: Path) -> None:
    save_graph(full_graph(), tmp_path / "g")
    assert validate_graph(open_graph(tmp_path / "g"), name="g") == []
    assert read_folder(tmp_path / "g", "graph", 1).meta["num_edges"] == 150
