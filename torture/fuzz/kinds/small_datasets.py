"""Small datasets of every form that gnnexp reads, put into the current folder, to be damaged."""
# ruff: noqa: D103  each puts what its name says

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
import torch

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.datasets.published.aminer import Aminer
from gnnexp.datasets.published.fb100 import Fb100
from gnnexp.datasets.published.npz import GraphDataNpz, HeterophilousNpz
from gnnexp.datasets.published.ogb import Ogb
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.datasets.published.triples import Triples
from gnnexp.graph.storage.format import save_graph
from gnnexp.testing.graphs import nasty_graph


def hetero_arrays() -> dict[str, np.ndarray]:
    masks = np.zeros((10, 12), bool)
    return {
        "node_features": np.eye(12, 3, dtype=np.float32),
        "node_labels": np.arange(12) % 3,
        "edges": np.array([[0, 1], [2, 3], [4, 11]]),
        "train_masks": masks | (np.arange(12) < 6),
        "val_masks": masks | (np.arange(12) == 7),
        "test_masks": masks | (np.arange(12) > 8),
    }


def put_hetero() -> Dataset:
    arrays: dict[str, Any] = hetero_arrays()
    np.savez_compressed("tolokers.npz", **arrays)
    return HeterophilousNpz(path="tolokers.npz")


def boxed(value: object) -> np.ndarray:
    array = np.empty((), object)
    array[()] = value
    return array


def put_graphdata() -> Dataset:
    matrix = scipy.sparse.random(12, 12, 0.3, format="csr", random_state=0)
    np.savez("amazon_cs.npz", adj_matrix=boxed(matrix), node_attr=boxed(matrix), node_label=np.arange(12) % 3)
    return GraphDataNpz(path="amazon_cs.npz")


def put_planetoid() -> Dataset:
    hot = np.eye(3, dtype=np.int32)[np.arange(800) % 3]
    rows: Any = scipy.sparse.random(800, 5, 0.5, format="csr", random_state=0, dtype=np.float32)
    parts = {
        "x": rows[:9],
        "y": hot[:9],
        "allx": rows[:790],
        "ally": hot[:790],
        "tx": rows[790:],
        "ty": hot[790:],
        "graph": {vertex: [(vertex + 1) % 800] for vertex in range(800)},
    }
    for part, value in parts.items():
        Path(f"ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=2))
    Path("ind.cora.test.index").write_text("".join(f"{vertex}\n" for vertex in range(790, 800)))
    return Planetoid(path=".")


def put_mat(compressed: bool = True) -> Dataset:
    matrix = scipy.sparse.random(12, 12, 0.3, format="csc", random_state=0)
    info = np.tile(np.arange(12, dtype=np.int32)[:, None] % 3, (1, 7))
    scipy.io.savemat("Cornell5.mat", {"A": matrix, "local_info": info}, do_compression=compressed)
    return Fb100(path="Cornell5.mat")


def put_text() -> Dataset:
    Path("edges.tsv").write_text("".join(f"{vertex}\t{(vertex * 7 + 1) % 40}\n" for vertex in range(40)))
    Path("labels.txt").write_text("".join(f"{vertex % 3}\n" for vertex in range(40)))
    return EdgeList(path="edges.tsv", labels="labels.txt")


def put_packed_text() -> Dataset:
    text = "".join(f"{vertex},{(vertex * 7 + 1) % 40}\n" for vertex in range(40))
    Path("edges.csv.gz").write_bytes(gzip.compress(text.encode()))
    return EdgeList(path="edges.csv.gz")


def put_npy() -> Dataset:
    np.save("edges.npy", np.array([[vertex, (vertex * 7 + 1) % 40] for vertex in range(40)]))
    np.save("features.npy", np.eye(40, 4, dtype=np.float32))
    return EdgeList(path="edges.npy", features="features.npy")


def put_split() -> None:
    Path("ogb/split/time").mkdir(parents=True)
    for name, ids in (("train", "3\n0\n"), ("valid", "1\n"), ("test", "4\n")):
        Path(f"ogb/split/time/{name}.csv.gz").write_bytes(gzip.compress(ids.encode()))


def put_raw() -> None:
    Path("ogb/raw").mkdir(parents=True)
    texts = {"edge": "0,1\n1,2\n3,4\n2,2\n", "num-node-list": "5\n", "node-feat": "1.5,2\n" * 5}
    for name, text in texts.items():
        Path(f"ogb/raw/{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


def put_ogbn() -> Dataset:
    put_raw()
    put_split()
    Path("ogb/raw/node-label.csv.gz").write_bytes(gzip.compress(b"2\n0\nnan\n1\n0\n"))
    return Ogb(name="ogbn-tiny", path="ogb")


def put_ogbn_binary() -> Dataset:
    put_split()
    Path("ogb/raw").mkdir()
    np.savez(
        "ogb/raw/data.npz",
        edge_index=np.array([[0, 1, 3], [1, 2, 4]]),
        num_nodes_list=np.array([5]),
        node_feat=np.eye(5, 2, dtype=np.float16),
    )
    np.savez("ogb/raw/node-label.npz", node_label=np.arange(5.0)[:, None])
    return Ogb(name="ogbn-tiny", path="ogb")


def put_ogbn_typed() -> Dataset:
    texts = {
        "raw/num-node-dict": "author,paper\n2,3\n",
        "raw/triplet-type-list": "author,writes,paper\n",
        "raw/relations/author___writes___paper/edge": "0,0\n1,2\n",
        "raw/node-label/paper/node-label": "0\n1\n1\n",
        "raw/node-feat/paper/node-feat": "1.5,2\n" * 3,
        "split/time/paper/train": "0\n",
        "split/time/paper/valid": "1\n",
        "split/time/paper/test": "2\n",
    }
    for name, text in texts.items():
        path = Path(f"ogb/{name}.csv.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return Ogb(name="ogbn-tiny", path="ogb")


def put_ogbl() -> Dataset:
    put_raw()
    Path("ogb/split/target").mkdir(parents=True)
    for name in ("valid", "test"):
        pairs = {"edge": np.array([[0, 1]]), "edge_neg": np.array([[2, 3]])}
        torch.save(pairs, f"ogb/split/target/{name}.pt", pickle_protocol=2)
    return Ogb(name="ogbl-tiny", path="ogb")


def put_aminer() -> Dataset:
    for name, modulo in (("pa", 9), ("pr", 7)):
        lines = (f"{paper}\t{paper % modulo}\n" for paper in range(20))
        Path(f"{name}.txt").write_text("".join(lines))
    np.save("labels.npy", np.arange(20) % 3)
    for split, ids in (("train", range(5)), ("val", range(5, 9)), ("test", range(9, 20))):
        np.save(f"{split}_20.npy", np.array(ids))
    return Aminer(path=".")


def put_triples() -> Dataset:
    for seed, name in enumerate(("train", "valid", "test")):
        lines = (f"e{number}\tr{number % 3}\te{(number * 7 + seed) % 15}\n" for number in range(15))
        Path(f"{name}.txt").write_text("".join(lines))
    return Triples(path=".")


def put_archive() -> Dataset:
    put_triples()
    with tarfile.open("triples.tar.gz", "w:gz") as archive:
        for path in sorted(Path().glob("*.txt")):
            info = tarfile.TarInfo(path.name)
            info.size = path.stat().st_size
            archive.addfile(info, io.BytesIO(path.read_bytes()))
            path.unlink()
    return Triples(path="triples.tar.gz")


def put_stored() -> Dataset:
    save_graph(nasty_graph(), Path("stored"))
    return GnnexpFormat(path="stored")


def put_split_files() -> Dataset:
    """Text with a header, types of vertices and a split in files."""
    Path("edges.csv").write_text("a,b\n" + "".join(f"{vertex},{(vertex * 7 + 1) % 40}\n" for vertex in range(40)))
    columns = {"features.csv": "{0},{1}", "labels.txt": "{2}", "types.txt": "{3}"}
    for name, form in columns.items():
        rows = (form.format(vertex, vertex * 0.5, vertex % 3, vertex % 2) + "\n" for vertex in range(40))
        Path(name).write_text("names\n" + "".join(rows))
    for name, ids in (("train", range(20)), ("val", range(20, 30)), ("test", range(30, 40))):
        Path(f"{name}.txt").write_text("ids\n" + "".join(f"{vertex}\n" for vertex in ids))
    return EdgeList(
        path="edges.csv",
        header=True,
        features="features.csv",
        labels="labels.txt",
        node_types="types.txt",
        features_by_type=True,
        split="files",
        train_ids="train.txt",
        val_ids="val.txt",
        test_ids="test.txt",
    )


def put_npy_split() -> Dataset:
    """Everything as `.npy`: typed edges, one class per vertex, ids and a mask."""
    np.save("edges.npy", np.array([[vertex, (vertex * 7 + 1) % 40, vertex % 2] for vertex in range(40)]))
    np.save("labels.npy", np.arange(40) % 3)
    np.save("train.npy", np.arange(20))
    np.save("val.npy", np.arange(20, 30))
    np.save("test.npy", np.arange(40) >= 30)
    return EdgeList(
        path="edges.npy",
        labels="labels.npy",
        split="files",
        train_ids="train.npy",
        val_ids="val.npy",
        test_ids="test.npy",
        inverse_relations=True,
    )


def put_streamed_text() -> Dataset:
    put_text()
    np.save("features.npy", np.eye(40, 4, dtype=np.float32))
    return EdgeList(path="edges.tsv", features="features.npy", labels="labels.txt", streamed=True)


def put_streamed_npy() -> Dataset:
    put_npy()
    return EdgeList(path="edges.npy", features="features.npy", streamed=True)


def put_streamed_pairs() -> Dataset:
    np.array([[vertex, (vertex * 7 + 1) % 40] for vertex in range(40)], np.int32).tofile("edges.bin")
    return EdgeList(path="edges.bin", streamed=True)


def put_streamed_archive() -> Dataset:
    Path("ogb/raw").mkdir(parents=True)
    np.savez("ogb/raw/data.npz", edge_index=np.array([[0, 1, 3], [1, 2, 4]]), num_nodes_list=np.array([5]))
    return EdgeList(path="ogb", streamed=True)


def put_streamed_raw() -> Dataset:
    put_raw()
    return EdgeList(path="ogb", streamed=True)


def put_streamed_stored() -> Dataset:
    save_graph(nasty_graph(), Path("stored"))
    return EdgeList(path="stored", streamed=True)


DATASETS: dict[str, Callable[[], Dataset]] = {
    "heterophilous": put_hetero,
    "graphdata": put_graphdata,
    "planetoid": put_planetoid,
    "fb100": put_mat,
    "fb100 unpacked": lambda: put_mat(compressed=False),
    "text": put_text,
    "packed text": put_packed_text,
    "npy": put_npy,
    "ogbn": put_ogbn,
    "ogbn binary": put_ogbn_binary,
    "ogbl": put_ogbl,
    "ogbn typed": put_ogbn_typed,
    "aminer": put_aminer,
    "triples": put_triples,
    "archive": put_archive,
    "stored": put_stored,
    "split files": put_split_files,
    "npy split": put_npy_split,
    "streamed text": put_streamed_text,
    "streamed npy": put_streamed_npy,
    "streamed pairs": put_streamed_pairs,
    "streamed archive": put_streamed_archive,
    "streamed raw": put_streamed_raw,
    "streamed stored": put_streamed_stored,
}
