"""Malformed MATLAB and NumPy files: refused, at no cost, nothing executed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from malformed import (
    EXECUTES,
    OBJECT,
    claims,
    deflated_zeros,
    forged_zip,
    npy,
    npy_of,
    refused,
    workplace,
)

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.published.npz import GraphDataNpz
from torture.fuzz.kinds.small_datasets import (
    boxed,
    put_graphdata,
    put_mat,
    put_npy,
)

__all__ = ["workplace"]


def mat_element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content


@pytest.mark.parametrize("name", ["packed zeros", "huge element", "huge matrix"])
def test_matlab_files(name: str) -> None:
    dataset = put_mat(compressed=False)
    header = Path("Cornell5.mat").read_bytes()[:128]
    flags, shape = mat_element(6, struct.pack("<II", 6, 0)), mat_element(5, struct.pack("<ii", 1 << 20, 1 << 20))
    start = flags + shape + mat_element(1, b"A" + bytes(7)) + struct.pack("<II", 9, 1 << 31)
    matrix = struct.pack("<II", 14, 1 << 31) + start
    Path("Cornell5.mat").write_bytes(
        header
        + {
            "packed zeros": mat_element(15, deflated_zeros(128, matrix, 15)),
            "huge element": matrix,
            "huge matrix": mat_element(14, start + bytes(64)),
        }[name]
    )
    refused(dataset.load, "Cornell5.mat")


NPYS: dict[str, bytes] = {
    "executing": OBJECT + EXECUTES,
    "a pickle": EXECUTES,
    "2^60": claims("<i8", (1 << 60, 2)),
    "2^80": claims("<i8", (1 << 40, 1 << 40)),
    "negative": claims("<i8", (-1, 2)),
    "records": npy(np.zeros(3, "i8,i8")),
    "ids of 2^64": npy(np.full((3, 2), 2**64 - 1, np.uint64)),
    "negative ids": npy(np.array([[0, -1]])),
    "ids far apart": npy(np.array([[0, 1 << 62]])),
    "fractions": npy(np.zeros((3, 2))),
    "code": npy_of("__import__('os').system('touch executed')"),
    "brackets": npy_of("(" * 110),
    "header of 4 GiB": npy_of("{", b"", b"\x02\x00", 2**32 - 1),
    "archive": forged_zip("a.npy", b"", 0, 0),
}


@pytest.mark.parametrize("name", NPYS)
def test_npy_files(name: str) -> None:
    dataset = put_npy()
    Path("edges.npy").write_bytes(NPYS[name])
    refused(dataset.load, "edges.npy")


def test_features_with_terabytes_of_holes() -> None:
    dataset = put_npy()
    Path("features.npy").write_bytes(claims("<f4", (40, 1 << 34)))
    os.truncate("features.npy", 128 + (40 << 36))
    refused(dataset.load, "features.npy")


def test_dense_features_beyond_memory() -> None:
    matrix = scipy.sparse.csr_matrix((np.ones(1), [5], [0, 1] + [1] * 11), shape=(12, 2**31 - 1))
    put_graphdata()
    ring = scipy.sparse.csr_matrix(np.roll(np.eye(12), 1, axis=1))
    np.savez("amazon_cs.npz", adj_matrix=boxed(ring), node_attr=boxed(matrix), node_label=np.arange(12) % 3)
    refused(GraphDataNpz(path="amazon_cs.npz", sparse=False).load, "dense")


def test_a_device_is_no_file_of_edges() -> None:
    Path("folder").mkdir()
    Path("folder/edges.txt").symlink_to("/dev/zero")
    refused(EdgeList(path="folder").load, "folder")
