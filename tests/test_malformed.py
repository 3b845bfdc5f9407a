"""Malformed configs, graphs, datasets and partitions: refused in a user's words, at no cost, and nothing executed."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.io
import scipy.sparse
import torch
from nasty_graphs import nasty_graph
from small_graphs import full_graph

from gnnexp.cli.main import run_command
from gnnexp.cli.prepare import checked
from gnnexp.config.folders import product_folder
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.fb100 import Fb100
from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.datasets.graphdata_npz import GraphDataNpz
from gnnexp.datasets.heterophilous_npz import HeterophilousNpz
from gnnexp.datasets.ogb import Ogb
from gnnexp.datasets.planetoid import Planetoid
from gnnexp.errors import ConfigError, DataError, ProblemsError
from gnnexp.graph.arrays import META, file_sha256
from gnnexp.graph.format import save_graph
from gnnexp.graph.graph import Graph
from gnnexp.graph.layout import arrays_of
from gnnexp.graph.partition import Partition
from gnnexp.graph.validate import validate_graph
from gnnexp.partitioners.stored import StoredPartitioner

MAX_GROWTH = 300 << 20
BLOCK = 1 << 24
GRAPH = nasty_graph()


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with room above it for what escapes; what was executed, escaped or swallowed memory fails."""
    work = tmp_path / "above" / "place" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("GNNEXP_CACHE", str(work.parent / "cache"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = psutil.Process().memory_info().rss
    yield work
    assert peak_bytes() - before < MAX_GROWTH
    assert not list(tmp_path.rglob("executed*")) and not list(tmp_path.rglob("escaped*"))
    assert [item.name for item in (*tmp_path.iterdir(), *(tmp_path / "above").iterdir())] == ["above", "place"]
    assert {item.name for item in work.parent.iterdir()} <= {"work", "cache"}
    assert not (work / "never").exists()


class Executes:
    """Its pickle makes a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


EXECUTES = pickle.dumps(Executes(), protocol=2)


def refused(call: Callable[[], object], word: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        call()
    assert word in str(caught.value)
    assert all(problem.mend and len(str(problem.value)) < 1000 for problem in caught.value.problems)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npy_of(header: str, data: bytes = b"", version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    """A `.npy` file that says whatever we like."""
    text = header.encode().ljust(117) + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + version + size + text + data


def claims(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return npy_of(f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}", data)


OBJECT = npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (), }")


def deflated_zeros(blocks: int, start: bytes = b"", wbits: int = -15) -> bytes:
    """`start` and 16 MiB of zeros per block, in some KiB and without the time that packing them would take."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    content = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return content + block * blocks + packer.flush()


def forged_zip(name: str, data: bytes, method: int, claimed: int, flags: int = 0) -> bytes:
    """An archive of one member whose size is what somebody claims."""
    word = name.encode()
    sizes = struct.pack("<HHHHIII", flags, method, 0, 0, 0, len(data), claimed)
    local = b"PK\x03\x04" + struct.pack("<H", 20) + sizes + struct.pack("<HH", len(word), 0) + word + data
    central = b"PK\x01\x02" + struct.pack("<HH", 20, 20) + sizes + struct.pack("<HHHHHII", len(word), 0, 0, 0, 0, 0, 0)
    central += word
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def damaged(content: bytes, generator: random.Random) -> bytes:
    """What a disk, a network or somebody with bad intentions makes of a file."""
    changed = bytearray(content)
    kind = generator.choice(["truncated", "flipped", "flipped", "flips", "emptied", "garbled", "longer", "pickle"])
    if kind == "truncated":
        return content[: generator.randrange(len(content))]
    if kind in ("flipped", "flips"):
        for _ in range(1 if kind == "flipped" else 20):
            # Headers are short, so half of the flips are made there.
            limit = len(content) if generator.random() < 0.5 else min(len(content), 200)
            changed[generator.randrange(limit)] ^= 1 << generator.randrange(8)
        return bytes(changed)
    return {"emptied": b"", "garbled": generator.randbytes(len(content)), "longer": content + generator.randbytes(9),
            "pickle": EXECUTES}[kind]


# --- Configurations -------------------------------------------------------------------------------------------------

GAT = "_target_: gnnexp.models.gat.GAT\n"
LAUGHS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else '1'] * 9)}]\n" for n in range(10))
CONFIGS: dict[str, tuple[str | bytes, str]] = {
    "executing tag": ("hidden: !!python/object/apply:os.system ['touch executed']\n", "os.system"),
    "executing object": ("!!python/object/new:os.system ['touch executed']", "os.system"),
    "executing target": ("_target_: os.system\ncommand: touch executed\n", "model._target_='os.system'"),
    "executing nested target": (GAT + "hidden: {_target_: subprocess.getoutput, cmd: touch executed}\n", "getoutput"),
    "builtin": ("_target_: builtins.exec\nsource: open('executed', 'w')\n", "builtins.exec"),
    "binary": (bytes(range(256)), "utf-8"),
    "zero bytes": (b"\0" * 64, "bad"),
    "UTF-16": (GAT.encode("utf-16"), "utf-8"),
    "half a line": (GAT + "hidden: [1, ", "bad"),
    "open brackets": ("a: " + "[" * 50_000, "100 levels"),
    "deep": (GAT + "hidden: " + "[" * 5000 + "]" * 5000, "100 levels"),
    "deep mappings": (GAT + "hidden: " + "{a: " * 5000 + "1" + "}" * 5000, "100 levels"),
    "laughs": (GAT + LAUGHS, "100000 nodes"),
    "in itself": ("a: &a {b: *a}\n", "*a inside of itself"),
    "endless list": (GAT + "hidden: [" + "1," * 200_000 + "]\n", "100000 nodes"),
    "megabytes": ("# " + "x" * (2 << 20), "1048576 bytes"),
    "its own default": ("defaults: [bad]\n", "recursion"),
    "defaults elsewhere": ("defaults: [/../../../../etc/passwd]\n", "passwd"),
    "digits": (GAT + "hidden: " + "9" * 5000, "5000 digits"),
    "beyond memory": (GAT + "hidden: 1" + "0" * 60 + "\nheads: 1\n", "10000000000"),
    "NaN": (GAT + "hidden: .nan\n", "model.hidden=nan"),
    "infinity": (GAT + "dropout: .inf\n", "model.dropout=inf"),
    "list": ("[1, 2, 3]\n", "model=[1, 2, 3]"),
    "number": ("_target_: 5\n", "model={'_target_': 5}"),
    "date": (GAT + "hidden: 2020-01-01\n", "model.hidden='2020-01-01'"),
    "interpolation": ("_target_: ${_target_}\n", "nterpolation"),
    "unset": ("_target_: ${oc.env:NO_SUCH_VARIABLE_AT_ALL}\n", "NO_SUCH_VARIABLE_AT_ALL"),
}


def put_config(content: str | bytes, group: str = "model") -> list[str]:
    folder = Path("conf") / group
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    return [f"{group}=bad", "tracker=none", "hydra.run.dir=never"]


def said_on_refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(arguments) in (1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said and "mend: " in said
    return said


@pytest.mark.parametrize("name", CONFIGS)
def test_config_files(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, word = CONFIGS[name]
    assert word in said_on_refusal(["run", *put_config(content), "--config-dir", "conf"], capsys)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_config_files(seed: int) -> None:
    generator = random.Random(seed)
    group = generator.choice(["model", "sampler", "dataset", "train"])
    file = generator.choice(sorted((product_folder("conf") / group).glob("*.yaml")))
    overrides = put_config(damaged(file.read_bytes(), generator), group)
    try:
        composed = checked(overrides, "conf")
    except ProblemsError as error:
        assert all(problem.mend for problem in error.problems)
    else:
        assert json.dumps(composed.config)  # plain data, all of whose keys and types have been checked


OVERRIDES: dict[str, tuple[list[str], str]] = {
    "digits": (["seed=" + "9" * 5000], "5000 digits"),
    "large": (["seed=99999999999999999999999999"], "seed="),
    "not a number": (["train.lr=nan", "train.weight_decay=-inf", "hardware.timeout_s=inf"], "train.weight_decay"),
    "deep": (["sampler.fanouts=" + "[" * 2000 + "]" * 2000], "sampler.fanouts"),
    "deeper than it can be composed": (["sampler.fanouts=" + "[" * 150 + "]" * 150], "sampler.fanouts"),
    "zero byte": (["name=a\0b"], "name"),
    "half of a pair": (["model=\ud800"], "model"),
    "outside": (["name=../../escaped"], "name="),
    "file of another place": (["model=../../../../etc/passwd"], "model"),
    "tag": (["model=!!python/object/apply:os.system"], "model"),
    "executing": (["model._target_=os.system", "+model.command='touch executed'"], "os.system"),
    "executing launcher": (["hardware.launcher._target_=os.popen", "+hardware.launcher.cmd='touch executed'"], "popen"),
    "search path": (["hydra.searchpath=5"], "hydra.searchpath"),
    "long path": (["dataset=gnnexp_format", "dataset.path=" + "x" * 5000], "too long"),
    "long path of a partition": (["partitioner=stored", "partitioner.path=" + "x" * 5000], "partitioner.path"),
    "long name": (["dataset=heterophilous_npz", "dataset.path=.", "dataset.name=" + "x" * 5000], ".npz"),
    "delimiter": (["dataset=edge_list", "dataset.delimiter='::'"], "dataset.delimiter='::'"),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_overrides(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    overrides, word = OVERRIDES[name]
    assert word in said_on_refusal(["run", *overrides, "tracker=none", "hydra.run.dir=never"], capsys)


SWEEPS: dict[str, tuple[str | bytes, list[str], str]] = {
    "executing tag": ("fixed: !!python/object/apply:os.system ['touch executed']", [], "os.system"),
    "binary": (bytes(range(256)), [], "utf-8"),
    "half a line": ("axes: {seed: [1, ", [], "bad.yaml"),
    "wrong types": ("fixed: 5\naxes: [1]\ncases: {a: b}\nreport: 1", [], "bad.yaml: cases"),
    "values of no type": ("axes: {seed: [.nan, .inf, null, 1e400]}", [], "seed=nan"),
    "keys of no type": ("axes: {1: [2], '../../escaped': [3]}", [], "escaped"),
    "endless range": ("axes: {seed: [0]}", ["train.epochs=range(1,100000000000)"], "10000 values"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_files(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, overrides, word = SWEEPS[name]
    Path("bad.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    assert word in said_on_refusal(["sweep", "bad.yaml", "--dry-run", *overrides], capsys)


# --- Prepared graphs ------------------------------------------------------------------------------------------------


def same_arrays(left: Graph, right: Graph) -> bool:
    a, b = arrays_of(left), arrays_of(right)
    return list(a) == list(b) and all(torch.equal(a[name].nan_to_num(-7), b[name].nan_to_num(-7)) for name in a)


def forge(folder: Path, name: str, array: np.ndarray | bytes) -> None:
    """An array whose checksum, dtype and shape are those that `meta.json` gives: what somebody publishes."""
    content = array if isinstance(array, bytes) else npy(array)
    (folder / f"{name}.npy").write_bytes(content)
    meta = json.loads((folder / META).read_text())
    entry = meta["arrays"][name]
    if isinstance(array, np.ndarray):
        entry.update(dtype=array.dtype.str, shape=list(array.shape))
    entry["sha256"] = file_sha256(folder / f"{name}.npy")
    (folder / META).write_text(json.dumps(meta))


@pytest.mark.parametrize("seed", range(40))
def test_damaged_graphs(seed: int) -> None:
    generator = random.Random(seed)
    graph, folder = full_graph(sparse=bool(seed % 2)), Path("graph")
    save_graph(graph, folder)
    file = generator.choice(sorted(folder.iterdir()))
    file.write_bytes(damaged(file.read_bytes(), generator))
    try:
        opened = GnnexpFormat(path="graph").load()
    except DataError as error:
        assert "graph" in str(error)
    else:
        assert file.name == META and same_arrays(opened, graph)


def nonsense(array: np.ndarray, generator: random.Random) -> np.ndarray | bytes:
    """Values, dtypes and shapes of somebody who computes checksums."""
    changed = array.copy()
    integer = array.dtype.kind == "i"
    extremes = [-1, -2, 1 << 30, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min] if integer else [
        math.nan, math.inf, -math.inf, 1e38]
    changed.reshape(-1)[generator.randrange(max(1, array.size)) : ][:1] = generator.choice(extremes)
    return generator.choice([
        changed, changed, changed, array[:-1], np.concatenate([array, array]), array.astype(np.float64),
        array.reshape(-1, 1), np.zeros(0, array.dtype), np.empty((), object), OBJECT + EXECUTES,
        claims("<i8", (1 << 60,)), claims("<f4", (1 << 31, 1 << 31)), array[..., ::-1],
    ])


@pytest.mark.parametrize("seed", range(40))
def test_forged_graphs(seed: int) -> None:
    generator = random.Random(seed)
    graph, folder = full_graph(sparse=bool(seed % 2)), Path("graph")
    save_graph(graph, folder)
    name = generator.choice(list(arrays_of(graph)))
    if generator.random() < 0.9:
        forge(folder, name, nonsense(arrays_of(graph)[name].numpy(), generator))
    else:
        meta = json.loads((folder / META).read_text())
        key = generator.choice(["num_nodes", "num_edges", "num_classes", "num_features"])
        (folder / META).write_text(json.dumps({**meta, key: generator.choice([1 << 61, 1 << 80, -1, 0, 1.5, "x"])}))
    try:
        opened = GnnexpFormat(path="graph").load()
    except DataError as error:
        assert "graph" in str(error)
    else:  # another graph than before, but a graph
        assert validate_graph(opened, name="graph") == []


@pytest.mark.parametrize("name", ["../../../escaped", "/etc/passwd", "labels/../../x", "LABELS", "", "\0", "x" * 5000])
def test_names_of_arrays_lead_nowhere(name: str) -> None:
    save_graph(full_graph(), Path("graph"))
    meta = json.loads(Path("graph", META).read_text())
    meta["arrays"][name] = meta["arrays"].pop("labels")
    Path("graph", META).write_text(json.dumps(meta))
    refused(GnnexpFormat(path="graph").load, "without any path")


@pytest.mark.parametrize(("target", "word"), [("/etc/passwd", ".npy"), ("/dev/zero", ".npy"), ("/dev/null", ".npy"),
                                              ("labels.npy", ".npy"), ("nowhere", ".npy"), ("..", ".npy")])
def test_links_are_read_as_what_they_lead_to(target: str, word: str) -> None:
    save_graph(full_graph(), Path("graph"))
    Path("graph/labels.npy").unlink()
    Path("graph/labels.npy").symlink_to(target)
    refused(GnnexpFormat(path="graph").load, f"labels{word}")


def test_an_endless_meta_file() -> None:
    save_graph(full_graph(), Path("graph"))
    Path("graph", META).unlink()
    Path("graph", META).symlink_to("/dev/zero")
    refused(GnnexpFormat(path="graph").load, "must be small")


@pytest.mark.parametrize("harm", ["object", "truncated", "huge"])
def test_a_run_on_a_malformed_graph_never_starts(harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph(GRAPH, Path("graph"))
    if harm == "truncated":
        os.truncate("graph/features.npy", 200)
    else:
        forge(Path("graph"), "features", OBJECT + EXECUTES if harm == "object" else claims("<f4", (60, 1 << 55)))
    arguments = ["dataset=gnnexp_format", "dataset.path=graph", "tracker=none", "hydra.run.dir=never"]
    assert "features.npy" in said_on_refusal(["run", *arguments], capsys)


# --- Published datasets ---------------------------------------------------------------------------------------------


def hetero_arrays() -> dict[str, np.ndarray]:
    masks = np.zeros((10, 12), bool)
    return {"node_features": np.eye(12, 3, dtype=np.float32), "node_labels": np.arange(12) % 3,
            "edges": np.array([[0, 1], [2, 3], [4, 11]]), "train_masks": masks | (np.arange(12) < 6),
            "val_masks": masks | (np.arange(12) == 7), "test_masks": masks | (np.arange(12) > 8)}


def put_hetero() -> Dataset:
    np.savez_compressed("tolokers.npz", **hetero_arrays())
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
    rows = scipy.sparse.random(800, 5, 0.5, format="csr", random_state=0, dtype=np.float32)
    parts = {"x": rows[:9], "y": hot[:9], "allx": rows[:790], "ally": hot[:790], "tx": rows[790:], "ty": hot[790:],
             "graph": {vertex: [(vertex + 1) % 800] for vertex in range(800)}}
    for part, value in parts.items():
        Path(f"ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=2))
    Path("ind.cora.test.index").write_text("".join(f"{vertex}\n" for vertex in range(790, 800)))
    return Planetoid(path=".", verify=False)


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
    np.savez("ogb/raw/data.npz", edge_index=np.array([[0, 1, 3], [1, 2, 4]]), num_nodes_list=np.array([5]),
             node_feat=np.eye(5, 2, dtype=np.float16))
    np.savez("ogb/raw/node-label.npz", node_label=np.arange(5.0)[:, None])
    return Ogb(name="ogbn-tiny", path="ogb")


def put_ogbl() -> Dataset:
    put_raw()
    Path("ogb/split/target").mkdir(parents=True)
    for name in ("valid", "test"):
        pairs = {"edge": np.array([[0, 1]]), "edge_neg": np.array([[2, 3]])}
        torch.save(pairs, f"ogb/split/target/{name}.pt", pickle_protocol=2)
    return Ogb(name="ogbl-tiny", path="ogb")


DATASETS: dict[str, Callable[[], Dataset]] = {
    "heterophilous": put_hetero, "graphdata": put_graphdata, "planetoid": put_planetoid, "fb100": put_mat,
    "fb100 unpacked": lambda: put_mat(compressed=False), "text": put_text, "packed text": put_packed_text,
    "npy": put_npy, "ogbn": put_ogbn, "ogbn binary": put_ogbn_binary, "ogbl": put_ogbl,
}


def check_load(dataset: Dataset) -> None:
    """It is a graph by all rules, or is refused with the name of a file."""
    try:
        graph = dataset.load()
    except DataError as error:
        assert all(problem.mend and len(str(problem.value)) < 1000 for problem in error.problems)
        return
    assert [one for one in validate_graph(graph, name="g") if one.key != "g: train"] == []


@pytest.mark.parametrize("kind", DATASETS)
def test_undamaged_datasets_are_read(kind: str) -> None:
    assert DATASETS[kind]().load().num_edges > 0


@pytest.mark.parametrize("seed", range(10))
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
    "header of 2 GiB": (lambda: bomb("tolokers.npz", "node_features", npy_of("{", b"", b"\x02\x00", 2**31), 8, 2**31),
                        ".npy format"),
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
        from gnnexp.datasets.npz import NpzFile

        refused(lambda: NpzFile(Path("tolokers.npz")).array("node_features"), word)
    else:
        assert dataset.load().num_nodes == 12


def test_a_pickled_member_that_claims_little() -> None:
    dataset = put_graphdata()
    bomb("amazon_cs.npz", "adj_matrix", OBJECT, 8, 1000)
    refused(dataset.load, "amazon_cs.npz")


def laughs(first: bytes, build: Callable[[int], bytes], levels: int = 60) -> bytes:
    """Forty levels of the last one twice."""
    return first + b"".join(b"q" + bytes([level]) + build(level) for level in range(levels))


def get(level: int) -> bytes:
    return b"h" + bytes([level])


# [[..]] keeps the level below on the stack, so all of it ends as items of the outermost list.
TUPLES = laughs(b")", lambda level: get(level) + b"\x86")
LISTS = b"]" + laughs(b"]", lambda level: b"]" + get(level) + b"a" + get(level) + b"a")
PICKLES: dict[str, bytes] = {
    "executing": EXECUTES,
    "executing in the old way": b"cos\nsystem\n(S'touch executed'\ntR.",
    "executing instance": b"(S'touch executed'\nios\nsystem\n.",
    "executing build": b"\x80\x02cnumpy\nndarray\n)\x81cos\nsystem\nb.",
    "by the name of a module": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0etouch executed\x85R.",
    "nested tuples to hash": b"\x80\x02})" + b"\x85" * 10**6 + b"K\x01s.",
    "shared tuples to hash": b"\x80\x02}" + TUPLES + b"K\x01s.",
    "shared tuples behind a mark": b"\x80\x02}" + laughs(b")", lambda level: b"\x80\x02" + get(level) + b"\x86") + b"K\x01s.",
    "shared lists as a dtype": b"\x80\x02cnumpy\ndtype\n(" + LISTS + b"tR.",
    "shared lists as an encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a" + LISTS[1:] + b"\x86R.",
    "shared lists as a shape": b"\x80\x02cscipy.sparse._csr\ncsr_matrix\n)\x81}(X\x06\x00\x00\x00_shape(" + LISTS
                               + b"lub.",
    "memo of 2^31": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "text of 2^56": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x00.",
    "digits": b"I" + b"9" * 10**5 + b"\n.",
    "brackets": b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "persistent": b"\x80\x02Pexecuted\n.",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PICKLES)
@pytest.mark.parametrize("part", ["graph", "tx"])
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
    "empty lines": gzip.compress(b"\n" * BLOCK) * 16,
    "rows": gzip.compress(b"0,0\n" * (BLOCK // 4)) * 16,
    "half": gzip.compress(os.urandom(4096))[:2000],
    "not packed": b"0,1\n",
    "binary": gzip.compress(bytes(range(256))),
    "digits": gzip.compress(b"9" * 10**5 + b",1\n"),
    "negative": gzip.compress(b"0,-1\n"),
    "fractions": gzip.compress(b"0,1.5\n"),
    "not a number": gzip.compress(b"0,nan\n"),
    "ragged": gzip.compress(b"0,1\n0\n"),
    "formula": gzip.compress(b"=cmd|' /C touch executed'!A0,1\n"),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_tables(name: str) -> None:
    put_packed_text()
    Path("edges.csv.gz").write_bytes(PACKED[name])
    refused(EdgeList(path="edges.csv.gz").load, "edges.csv.gz")


@pytest.mark.parametrize("name", ["one line", "empty lines", "half", "binary"])
def test_packed_tables_of_ogb(name: str) -> None:
    dataset = put_ogbn()
    Path("ogb/raw/node-feat.csv.gz").write_bytes(PACKED[name])
    refused(dataset.load, "node-feat.csv.gz")


@pytest.mark.parametrize("count", [10**12, 10**18, 2**63 - 1, 10**30])
def test_more_vertices_than_memory(count: int) -> None:
    dataset = put_ogbn()
    Path("ogb/raw/num-node-list.csv.gz").write_bytes(gzip.compress(str(count).encode()))
    refused(dataset.load, "num-node-list")


@pytest.mark.parametrize("changes", [
    {"num_nodes_list": np.array([10**12])}, {"num_nodes_list": np.array([-5])}, {"num_nodes_list": np.array([math.nan])},
    {"num_nodes_list": np.array(["5"])}, {"edge_index": np.zeros((2, 0), int), "num_nodes_list": np.array([-3])},
    {"edge_index": np.array([[0], [2**62]])}, {"node_feat": np.zeros(5)}, {"node_feat": np.full((5, 2), np.nan)},
    {"node_feat": np.array([Executes()] * 5)}, {"edge_index": np.zeros((2, 3, 1), int)},
], ids=str)
def test_wrong_arrays_of_ogb(changes: dict[str, np.ndarray]) -> None:
    dataset = put_ogbn_binary()
    with np.load("ogb/raw/data.npz") as archive:
        arrays = dict(archive)
    np.savez("ogb/raw/data.npz", **{**arrays, **changes})
    refused(dataset.load, "")


@pytest.mark.parametrize("labels", [np.array(5.0), np.zeros((0, 1)), np.zeros((5, 0)), np.array(["a"] * 5),
                                    np.full((5, 1), np.inf), np.full(5, -np.inf), np.full((5, 1), 2.5)], ids=str)
def test_wrong_labels_of_ogb(labels: np.ndarray) -> None:
    dataset = put_ogbn_binary()
    np.savez("ogb/raw/node-label.npz", node_label=labels)
    refused(dataset.load, "")


def mat_element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content


@pytest.mark.parametrize("name", ["packed zeros", "huge element", "huge matrix"])
def test_matlab_files(name: str) -> None:
    dataset = put_mat(compressed=False)
    header = Path("Cornell5.mat").read_bytes()[:128]
    flags, shape = mat_element(6, struct.pack("<II", 6, 0)), mat_element(5, struct.pack("<ii", 1 << 20, 1 << 20))
    start = flags + shape + mat_element(1, b"A" + bytes(7)) + struct.pack("<II", 9, 1 << 31)
    matrix = struct.pack("<II", 14, 1 << 31) + start
    Path("Cornell5.mat").write_bytes(header + {
        "packed zeros": mat_element(15, deflated_zeros(128, matrix, 15)), "huge element": matrix,
        "huge matrix": mat_element(14, start + bytes(64))}[name])
    refused(dataset.load, "Cornell5.mat")


NPYS: dict[str, bytes] = {
    "executing": OBJECT + EXECUTES, "a pickle": EXECUTES, "2^60": claims("<i8", (1 << 60, 2)),
    "2^80": claims("<i8", (1 << 40, 1 << 40)), "negative": claims("<i8", (-1, 2)), "records": npy(np.zeros(3, "i8,i8")),
    "ids of 2^64": npy(np.full((3, 2), 2**64 - 1, np.uint64)), "negative ids": npy(np.array([[0, -1]])),
    "ids far apart": npy(np.array([[0, 1 << 62]])), "fractions": npy(np.zeros((3, 2))),
    "code": npy_of("__import__('os').system('touch executed')"), "brackets": npy_of("(" * 110),
    "header of 4 GiB": npy_of("{", b"", b"\x02\x00", 2**32 - 1), "archive": forged_zip("a.npy", b"", 0, 0),
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


# --- Stored partitions ----------------------------------------------------------------------------------------------


def put_partition() -> Partition:
    owners = (torch.arange(GRAPH.num_nodes) % 4).to(torch.int16)
    partition = Partition(owners, 4, (torch.arange(GRAPH.num_edges) % 4).to(torch.int16), graph_key="key")
    partition.save(Path("partition"))
    return partition


def read_partition(num_parts: int = 4, key: str = "key") -> Partition:
    return StoredPartitioner("partition").partition(GRAPH, num_parts, key)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_partitions(seed: int) -> None:
    generator = random.Random(seed)
    partition = put_partition()
    file = generator.choice(sorted(Path("partition").iterdir()))
    file.write_bytes(damaged(file.read_bytes(), generator))
    try:
        found = read_partition()
    except DataError as error:
        assert "partition" in str(error)
    else:
        assert file.name == META and found.num_parts == 4 and torch.equal(found.node_owner, partition.node_owner)


OWNERS = np.arange(GRAPH.num_nodes, dtype=np.int16) % 4


@pytest.mark.parametrize("owners", [
    OWNERS[:-1], np.concatenate([OWNERS, OWNERS]), OWNERS + 1, OWNERS - 1, OWNERS.astype(np.int64),
    OWNERS.astype(np.float32), OWNERS[:, None], OWNERS[:0], OBJECT + EXECUTES, EXECUTES, claims("<i2", (1 << 60,)),
    np.full_like(OWNERS, 32767), np.full_like(OWNERS, -32768),
], ids=range(13))
def test_forged_partitions(owners: np.ndarray | bytes) -> None:
    put_partition()
    forge(Path("partition"), "node_owner", owners)
    refused(read_partition, "partition")


@pytest.mark.parametrize("change", [
    {"num_parts": 0}, {"num_parts": 5}, {"num_parts": 1 << 40}, {"num_parts": 1 << 70}, {"num_parts": "4"},
    {"num_parts": True}, {"num_parts": 3}, {"options": []}, {"graph_key": "another"}, {"kind": "graph"}, {"arrays": {}},
    {"seconds": "1"}, {"schema": 10**9},
], ids=str)
def test_wrong_metadata_of_partitions(change: dict[str, Any]) -> None:
    put_partition()
    path = Path("partition", META)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refused(read_partition, "partition")


def test_partitions_of_other_graphs() -> None:
    put_partition()
    refused(lambda: read_partition(key="another"), "key of this graph")
    other = nasty_graph(61)
    refused(lambda: StoredPartitioner("partition").partition(other, 4, "key"), "[61]")
    refused(lambda: read_partition(num_parts=8), "8")


def test_a_run_with_a_malformed_partition_never_starts(capsys: pytest.CaptureFixture[str]) -> None:
    save_graph(replace(GRAPH, name="g"), Path("graph"))
    put_partition()
    forge(Path("partition"), "node_owner", OBJECT + EXECUTES)
    arguments = ["dataset=gnnexp_format", "dataset.path=graph", "partitioner=stored", "partitioner.path=partition",
                 "hardware.workers=4", "tracker=none", "hydra.run.dir=never"]
    assert "partition" in said_on_refusal(["partition", *arguments], capsys)
