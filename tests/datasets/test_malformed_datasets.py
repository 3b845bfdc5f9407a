"""Malformed files of published datasets and of users: refused, at no cost, nothing executed."""

from __future__ import annotations

import gzip
import math
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from malformed import (
    BLOCK,
    EXECUTES,
    OBJECT,
    Executes,
    claims,
    damaged,
    deflated_zeros,
    forged_zip,
    many,
    npy_of,
    refused,
    workplace,
)

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.errors import DataError
from gnnexp.files.cache import cache_root
from gnnexp.graph.validate import validate_graph
from gnnexp.preparation.artifacts import prepare_graph
from torture.fuzz.kinds.small_datasets import (
    DATASETS,
    hetero_arrays,
    put_graphdata,
    put_hetero,
    put_ogbl,
    put_ogbn,
    put_ogbn_binary,
    put_ogbn_typed,
    put_packed_text,
    put_planetoid,
)

__all__ = ["workplace"]


def check_load(dataset: Dataset) -> None:
    """It is a graph by all rules, or is refused with the name of a file."""
    streamed = getattr(dataset, "streamed", False)  # these are judged where they are stored
    try:
        graph = prepare_graph(dataset, cache_root())[0] if streamed else dataset.load()
    except DataError as error:
        assert all(problem.fix and len(str(problem.value)) < 1000 for problem in error.problems)
        return
    assert [one for one in validate_graph(graph, name="g") if one.key != "g: train"] == []


@pytest.mark.parametrize("kind", DATASETS)
def test_undamaged_datasets_are_read(kind: str) -> None:
    assert DATASETS[kind]().load().num_edges > 0


@pytest.mark.parametrize("seed", many(10, quick=4))
@pytest.mark.parametrize("kind", DATASETS)
def test_damaged_datasets(kind: str, seed: int) -> None:
    generator = random.Random(f"{kind} {seed}")
    dataset = DATASETS[kind]()
    file = generator.choice(sorted(path for path in Path().rglob("*.*") if path.is_file()))
    content = file.read_bytes()
    for _ in range(8):
        file.write_bytes(damaged(content, generator))
        check_load(dataset)


def bomb(archive: str, name: str, start: bytes, method: int, claimed: int, flags: int = 0) -> None:
    data = deflated_zeros(128, start) if method == zipfile.ZIP_DEFLATED else start
    Path(archive).write_bytes(forged_zip(f"{name}.npy", data, method, claimed, flags))


def with_array(name: str, array: np.ndarray) -> Callable[[], object]:
    return lambda: np.savez("tolokers.npz", **{**hetero_arrays(), name: array})


def zip_with(name: str, content: bytes, method: int = zipfile.ZIP_STORED) -> Callable[[], object]:
    def put() -> None:
        with zipfile.ZipFile("tolokers.npz", "a", method) as archive:
            archive.writestr(name, content)

    return put


ZIPS: dict[str, tuple[Callable[[], object], str]] = {
    "objects": (with_array("node_labels", np.array([Executes()] * 12)), "numbers expected"),
    "forged objects": (zip_with("node_features.npy", OBJECT + EXECUTES), "numbers expected"),
    "names": (zip_with("../../../escaped.npy", b"x"), ""),
    "text": (with_array("node_labels", np.array(["x"] * 12)), "numbers expected"),
    "records": (with_array("edges", np.zeros(3, "i4,i4")), "numbers expected"),
    "dates": (with_array("edges", np.zeros((3, 2), "M8[s]")), "numbers expected"),
    "nothing of a size": (zip_with("edges.npy", claims("|V0", (1 << 60,))), "numbers expected"),
    "2^60 numbers": (zip_with("edges.npy", claims("<i8", (1 << 60,))), "0 bytes"),
    "2^120 numbers": (zip_with("edges.npy", claims("<i8", (1 << 60, 1 << 60))), "0 bytes"),
    "negative": (zip_with("edges.npy", claims("<i8", (-1, -2), bytes(16))), "numpy file"),
    "labels of 64 bits": (with_array("node_labels", np.full(12, 2**63 - 1)), "2^31"),
    "unsigned labels": (with_array("node_labels", np.full(12, 2**64 - 1, np.uint64)), "2^31"),
    "header of 2 GiB": (
        lambda: bomb("tolokers.npz", "node_features", npy_of("{", b"", b"\x02\x00", 2**31), 8, 2**31),
        ".npy format",
    ),
    "claims little": (lambda: bomb("tolokers.npz", "node_features", claims("<f4", (250,)), 8, 1128), "node_features"),
    "claims too much": (lambda: bomb("tolokers.npz", "node_features", claims("<f4", (1 << 40,)), 0, 1 << 31), "claims"),
    "bzip2": (zip_with("edges.npy", bytes(1 << 20), zipfile.ZIP_BZIP2), "compression method"),
    "LZMA": (zip_with("edges.npy", bytes(1 << 20), zipfile.ZIP_LZMA), "compression method"),
    "encrypted": (lambda: bomb("tolokers.npz", "node_features", claims("<f4", (0,)), 0, 128, flags=1), "encrypted"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ZIPS)
def test_archives(name: str) -> None:
    dataset = put_hetero()
    harm, word = ZIPS[name]
    harm()
    if word and "claim" not in name and "header" not in name and name != "encrypted":
        refused(dataset.load, word)
    elif word:  # an archive of one member
        from gnnexp.datasets.reading.npz import NpzFile

        refused(lambda: NpzFile(Path("tolokers.npz")).array("node_features"), word)
    else:
        assert dataset.load().num_nodes == 12


def test_a_pickled_member_that_claims_little() -> None:
    dataset = put_graphdata()
    bomb("amazon_cs.npz", "adj_matrix", OBJECT, 8, 1000)
    refused(dataset.load, "amazon_cs.npz")


def laughs(first: bytes, build: Callable[[int], bytes], levels: int = 3) -> bytes:
    """Each level holds the one before twice."""
    return first + b"".join(b"q" + bytes([level]) + build(level) for level in range(levels))


def get(level: int) -> bytes:
    return b"h" + bytes([level])


TUPLES = laughs(b")", lambda level: get(level) + b"\x86")
LISTS = b"](" + laughs(b"]", lambda level: b"]" + get(level) + b"a" + get(level) + b"a") + b"e"
PICKLES: dict[str, bytes] = {
    "executing": EXECUTES,
    "executing in the old way": b"cos\nsystem\n(S'touch executed'\ntR.",
    "executing instance": b"(S'touch executed'\nios\nsystem\n.",
    "executing build": b"\x80\x02cnumpy\nndarray\n)\x81cos\nsystem\nb.",
    "by the name of a module": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0etouch executed\x85R.",
    "nested tuples to hash": b"\x80\x02})" + b"\x85" * 5 + b"K\x01s.",
    "shared tuples to hash": b"\x80\x02}" + TUPLES + b"K\x01s.",
    "shared tuples behind a mark": b"\x80\x02}"
    + laughs(b")", lambda level: b"\x80\x02" + get(level) + b"\x86")
    + b"K\x01s.",
    "shared lists as a dtype": b"\x80\x02cnumpy\ndtype\n" + LISTS + b"\x85R.",
    "shared lists as an encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a" + LISTS + b"\x86R.",
    "shared lists as a shape": b"\x80\x02cscipy.sparse._csr\ncsr_matrix\n)\x81}X\x06\x00\x00\x00_shape"
    + LISTS
    + b"sb.",
    "memo of 2^31": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "text of 2^56": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x00.",
    "digits": b"I" + b"9" * 10**5 + b"\n.",
    "a list as a key": b"\x80\x02}]K\x01s.",
    "brackets": b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "persistent": b"\x80\x02Pexecuted\n.",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["graph", "tx"])
@pytest.mark.parametrize("name", PICKLES)
def test_pickles(name: str, part: str) -> None:
    dataset = put_planetoid()
    Path(f"ind.cora.{part}").write_bytes(PICKLES[name])
    refused(dataset.load, f"ind.cora.{part}")


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_in_files_of_torch(name: str) -> None:
    dataset = put_ogbl()
    with zipfile.ZipFile("ogb/split/target/valid.pt", "w") as archive:
        archive.writestr("archive/data.pkl", PICKLES[name])
        archive.writestr("../../escaped", b"x")
    refused(dataset.load, "valid.pt")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packed_files_of_torch(method: int) -> None:
    dataset = put_ogbl()
    data = {8: lambda: deflated_zeros(128)}.get(method, lambda: b"x" * 5000)()
    Path("ogb/split/target/valid.pt").write_bytes(forged_zip("archive/data.pkl", data, method, 4000))
    refused(dataset.load, "valid.pt")


@pytest.mark.parametrize("put", [put_planetoid, put_ogbl])
def test_files_with_terabytes_of_holes(put: Callable[[], Dataset]) -> None:
    dataset = put()
    for file in ("ind.cora.tx", "ogb/split/target/valid.pt"):
        if Path(file).exists():
            os.truncate(file, 1 << 40)
    refused(dataset.load, "1099511627776 bytes")


PACKED: dict[str, bytes] = {
    "one line": gzip.compress(bytes(BLOCK)) * 16,
    "one row": gzip.compress(b"1," * (BLOCK // 2)) * 16,
    "empty lines": gzip.compress(b"\n" * BLOCK) * 3,  # as a list they are 400 megabytes
    "rows": gzip.compress(b"0,0\n" * (BLOCK // 4)) * 16,
    "half": gzip.compress(os.urandom(4096))[:2000],
    "not packed": b"0,1\n",
    "binary": gzip.compress(bytes(range(256))),
    "digits": gzip.compress(b"9" * 10**5 + b",1\n"),
    "more digits than a float has": gzip.compress(b"9" * 310 + b",1\n"),
    "negative, more digits than a float has": gzip.compress(b"-" + b"9" * 310 + b",1\n"),
    "negative": gzip.compress(b"0,-1\n"),
    "fractions": gzip.compress(b"0,1.5\n"),
    "not a number": gzip.compress(b"0,nan\n"),
    "what numpy takes for a digit": gzip.compress("0,1\u01fe\n".encode()),
    "what numpy dies of": gzip.compress("0,1\n\U000fe779,2\n".encode()),
    "other digits": gzip.compress("0,\u0661\n".encode()),
    "other spaces": gzip.compress("0,\u00a01\n".encode()),
    "byte order mark": gzip.compress("\ufeff0,1\n".encode()),
    "ragged": gzip.compress(b"0,1\n0\n"),
    "formula": gzip.compress(b"=cmd|' /C touch executed'!A0,1\n"),
}


# Text with a byte order mark is read: tests/datasets/test_byte_order_mark.py.
@pytest.mark.parametrize("name", [name for name in PACKED if name != "byte order mark"])
def test_packed_tables(name: str) -> None:
    put_packed_text()
    Path("edges.csv.gz").write_bytes(PACKED[name])
    refused(EdgeList(path="edges.csv.gz").load, "edges.csv.gz")


@pytest.mark.parametrize("name", ["one line", "empty lines", "half", "binary"])
def test_packed_tables_of_ogb(name: str) -> None:
    dataset = put_ogbn()
    Path("ogb/raw/node-feat.csv.gz").write_bytes(PACKED[name])
    refused(dataset.load, "node-feat.csv.gz")


def set_count(form: str, count: int) -> None:
    if form == "binary":
        with np.load("ogb/raw/data.npz") as archive:
            np.savez("ogb/raw/data.npz", **{**archive, "num_nodes_list": np.array([count])})
    elif form == "typed":
        Path("ogb/raw/num-node-dict.csv.gz").write_bytes(gzip.compress(f"author,paper\n{count},3\n".encode()))
    else:
        Path("ogb/raw/num-node-list.csv.gz").write_bytes(gzip.compress(str(count).encode()))


@pytest.mark.parametrize("edges", ["right", "damaged"])
@pytest.mark.parametrize("form", ["text", "binary", "typed"])
def test_a_damaged_count_takes_no_memory(form: str, edges: str) -> None:
    """One number of a small file asked for four gigabytes, where a machine has them."""
    dataset = {"text": put_ogbn, "binary": put_ogbn_binary, "typed": put_ogbn_typed}[form]()
    set_count(form, 100_000_000)
    if edges == "damaged" and form != "binary":
        next(Path("ogb/raw").rglob("edge.csv.gz")).write_bytes(gzip.compress(b"a,b\n"))
    refused(dataset.load, "edge.csv.gz" if edges == "damaged" and form != "binary" else "100000")


@pytest.mark.parametrize("name", ["../../../outside", "/etc", "a" * 300, "a/b", "\u00e9" * 90, "..", ".", "a\0b"])
@pytest.mark.parametrize("place", ["type", "relation"])
def test_names_of_types_do_not_leave_the_folder(name: str, place: str) -> None:
    dataset = put_ogbn_typed()
    of_type, relation = (name, "writes") if place == "type" else ("author", name)
    Path("ogb/raw/num-node-dict.csv.gz").write_bytes(gzip.compress(f"{of_type},paper\n2,3\n".encode()))
    Path("ogb/raw/triplet-type-list.csv.gz").write_bytes(gzip.compress(f"{of_type},{relation},paper\n".encode()))
    refused(dataset.load, "ogb")


@pytest.mark.parametrize("count", [10**12, 10**18, 2**63 - 1, 10**30])
def test_more_vertices_than_memory(count: int) -> None:
    dataset = put_ogbn()
    Path("ogb/raw/num-node-list.csv.gz").write_bytes(gzip.compress(str(count).encode()))
    refused(dataset.load, "num-node-list")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_nodes_list": np.array([10**12])},
        {"num_nodes_list": np.array([-5])},
        {"num_nodes_list": np.array([math.nan])},
        {"num_nodes_list": np.array(["5"])},
        {"edge_index": np.zeros((2, 0), int), "num_nodes_list": np.array([-3])},
        {"edge_index": np.array([[0], [2**62]])},
        {"node_feat": np.zeros(5)},
        {"node_feat": np.full((5, 2), np.nan)},
        {"node_feat": np.array([Executes()] * 5)},
        {"edge_index": np.zeros((2, 3, 1), int)},
    ],
    ids=lambda changes: "+".join(f"{name} {value.dtype} {value.shape}" for name, value in changes.items()),
)
def test_wrong_arrays_of_ogb(changes: dict[str, np.ndarray]) -> None:
    dataset = put_ogbn_binary()
    with np.load("ogb/raw/data.npz") as archive:
        arrays = dict(archive)
    np.savez("ogb/raw/data.npz", **{**arrays, **changes})
    refused(dataset.load, "")


@pytest.mark.parametrize(
    "labels",
    [
        np.array(5.0),
        np.zeros((0, 1)),
        np.zeros((5, 0)),
        np.array(["a"] * 5),
        np.full((5, 1), np.inf),
        np.full(5, -np.inf),
        np.full((5, 1), 2.5),
    ],
    ids=str,
)
def test_wrong_labels_of_ogb(labels: np.ndarray) -> None:
    dataset = put_ogbn_binary()
    np.savez("ogb/raw/node-label.npz", node_label=labels)
    refused(dataset.load, "")
