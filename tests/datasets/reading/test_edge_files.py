"""Edges in files as streams: every kind gives the same edges, bounded, with the mistakes named."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import room_for
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.reading.edge_files import TextFormat, TextStream, open_edges
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.storage.external import EdgeRules, csc_buckets
from gnnexp.graph.storage.format import save_graph
from gnnexp.graph.stream import ArrayStream, EdgeStream
from gnnexp.preparation.artifacts import prepare_graph

EDGES = np.random.default_rng(0).integers(0, 50, (400, 2))


def listed(stream: EdgeStream) -> list[tuple[int, int]]:
    return [(int(s), int(d)) for it in stream.chunks() for s, d in zip(it.sources, it.destinations, strict=True)]


def text(separator: str = "\t") -> str:
    lines = [f"{u}{separator}{v}{separator}7\n" for u, v in EDGES]
    return "# of no use\n" + "".join(lines[:200]) + "\n" + "".join(lines[200:])


def store(folder: Path, kind: str) -> Path:
    """The edges as a file or folder of some kind."""
    path = folder / kind
    if kind.endswith(".gz"):
        path.write_bytes(gzip.compress(text("," if ".csv" in kind else " ").encode()))
    elif kind.endswith(("tsv", "csv", "txt")):
        path.write_text(text("," if kind.endswith("csv") else "\t"))
    elif kind == "rows.npy":
        np.save(path, EDGES.astype(np.int32))
    elif kind == "fortran.npy":
        np.save(path, np.asfortranarray(EDGES))
    elif kind == "columns.npy":
        np.save(path, EDGES.T.copy())
    elif kind == "pairs.bin":
        EDGES.astype("<i4").tofile(path)
    elif kind == "ogb_text":
        (path / "raw").mkdir(parents=True)
        (path / "raw" / "edge.csv.gz").write_bytes(gzip.compress("".join(f"{u},{v}\n" for u, v in EDGES).encode()))
        (path / "raw" / "num-node-list.csv.gz").write_bytes(gzip.compress(b"50\n"))
    elif kind == "ogb_binary":
        (path / "raw").mkdir(parents=True)
        np.savez(path / "raw" / "data.npz", edge_index=EDGES.T, num_nodes_list=np.array([50]))
    return path


KINDS = [
    "fortran.npy",
    "e.tsv",
    "e.csv",
    "e.txt",
    "e.tsv.gz",
    "e.csv.gz",
    "rows.npy",
    "columns.npy",
    "pairs.bin",
    "ogb_text",
    "ogb_binary",
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_edges_in_every_pass(tmp_path: Path, kind: str) -> None:
    stream = open_edges(store(tmp_path, kind))
    assert stream.num_nodes == 50 and stream.num_edges == 400
    for _ in range(2):
        assert listed(stream) == [tuple(edge) for edge in EDGES.tolist()]
    assert stream.degrees.tolist() == np.bincount(EDGES.reshape(-1), minlength=50).tolist()


@pytest.mark.parametrize("lines", [1, 7, 1000])
def test_text_is_read_a_few_lines_at_a_time(tmp_path: Path, lines: int) -> None:
    stream = TextStream(store(tmp_path, "e.tsv"), TextFormat(), chunk_lines=lines)
    assert max(it.sources.size for it in stream.chunks()) <= lines
    assert listed(stream) == [tuple(edge) for edge in EDGES.tolist()]
    positions = [it.positions for it in stream.chunks()]
    assert [place.start for place in positions[1:]] == [place.stop for place in positions[:-1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"symmetrize": False, "duplicates": "keep", "self_loops": "keep"}])
@pytest.mark.parametrize("buffer", [40, 1 << 30])
def test_the_graph_is_the_one_that_is_read_as_a_whole(tmp_path: Path, kind: str, options: dict, buffer: int) -> None:
    np.save(tmp_path / "whole.npy", EDGES)
    expected = EdgeList(path=str(tmp_path / "whole.npy"), **options).load()
    dataset = EdgeList(path=str(store(tmp_path, kind)), streamed=True, buffer_bytes=buffer, **options)
    graph, _ = prepare_graph(dataset, tmp_path / "cache")
    assert torch.equal(graph.indptr, expected.indptr) and torch.equal(graph.indices, expected.indices)
    assert torch.equal(dataset.load().indices, expected.indices)
    stream = dataset.stream()
    assert stream is not None and stream.num_nodes == 50


def test_a_stored_graph_is_streamed(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", EDGES)
    graph = EdgeList(path=str(tmp_path / "whole.npy")).load()
    save_graph(graph, tmp_path / "stored")
    stream = open_edges(tmp_path / "stored")
    destinations, sources = graph.destinations().tolist(), graph.indices.tolist()
    assert listed(stream) == list(zip(sources, destinations, strict=True))
    again = EdgeList(path=str(tmp_path / "stored"), streamed=True)
    assert torch.equal(prepare_graph(again, tmp_path / "cache")[0].indices, graph.indices)


def test_vertex_data_beside_streamed_edges(tmp_path: Path) -> None:
    store(tmp_path, "pairs.bin")
    features = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", features)
    np.save(tmp_path / "y.npy", np.arange(60) % 4)
    options = {"features": "x.npy", "labels": "y.npy", "seed": 5}
    np.save(tmp_path / "whole.npy", EDGES)
    expected = EdgeList(path=str(tmp_path / "whole.npy"), **options).load()  # type: ignore[arg-type]
    found = EdgeList(path=str(tmp_path / "pairs.bin"), streamed=True, **options).load()  # type: ignore[arg-type]
    assert found.num_nodes == 60 and found.num_classes == expected.num_classes == 4 and found.notes == expected.notes
    assert isinstance(found.features, torch.Tensor) and np.array_equal(found.features.numpy(), features)
    assert found.labels is not None and expected.labels is not None and torch.equal(found.labels, expected.labels)
    assert torch.equal(found.splits.train, expected.splits.train)


@pytest.mark.parametrize("counts", [1, 2, 3, 1 << 20])
def test_buckets_of_a_graph_with_a_vertex_beyond_the_buffer(counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vertex with more edges than the buffer has a bucket of its own."""
    monkeypatch.setattr("gnnexp.graph.storage.external._COUNTS", counts)
    pairs = np.array([[v, 3] for v in range(9)] + [[3, v] for v in range(9)])

    def chunks():
        return ((it.sources, it.destinations) for it in ArrayStream(pairs, chunk_edges=4).chunks())

    indptr, buckets = csc_buckets(chunks, 9, EdgeRules(merge=True, drop_loops=True), buffer_edges=2)
    sizes = [bucket.indices.tolist() for bucket in buckets]
    assert sizes == [[3, 3], [3], [0, 1, 2, 4, 5, 6, 7, 8], [3, 3], [3, 3], [3]]
    assert indptr.tolist() == [0, 1, 2, 3, 11, 12, 13, 14, 15, 16]


@given(
    degrees=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    buffer_edges=st.integers(1, 9),
    counts=st.sampled_from([1, 2, 5, 99]),
)
def test_a_bucket_has_as_many_vertices_as_fit(degrees: list[int], buffer_edges: int, counts: int) -> None:
    destinations = np.repeat(np.arange(len(degrees)), degrees).astype(np.int32)
    expected, room = [0], 0
    for vertex, degree in enumerate(degrees):
        if room + degree > buffer_edges and vertex > expected[-1]:
            expected, room = [*expected, vertex], 0
        room += degree
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnexp.graph.storage.external._COUNTS", counts)
        indptr, buckets = csc_buckets(
            lambda: iter([(np.zeros_like(destinations), destinations)]), len(degrees), EdgeRules(), buffer_edges
        )
        assert [bucket.first for bucket in buckets] == expected
    assert indptr.tolist() == [0, *np.cumsum(degrees)]


BAD = {
    "a letter": ("e.tsv", b"0\t1\n1\tx\n", "line 2.*1\\\\tx|line 2"),
    "a negative id": ("e.tsv", b"0\t1\n0\t-4\n", "line 2"),
    "a fraction": ("e.csv", b"0,1\n0,1.5\n", "line 2"),
    "a short row": ("e.tsv", b"0\t1\n3\n", "line 2"),
    "one column": ("e.tsv", b"0\n1\n", "two columns"),
    "no rows": ("e.tsv", b"# nothing\n\n", "0 edges"),
    "no text": ("e.tsv", b"\xff\xfe\x00", "whole text file"),
    "half of a gz": ("e.tsv.gz", gzip.compress(b"0 1\n" * 9000)[:60], "whole text file"),
    "a bomb": ("e.tsv.gz", gzip.compress(b"0 1\n" + b" " * (1 << 25)), "line 2|unpacks to more|far too long"),
    "a line without end": ("e.tsv", b"0 1\n" + b"7" * (3 << 20), "far too long"),
    "half a pair": ("e.bin", b"\0" * 20, "multiple of 8 bytes"),
    "an empty file of pairs": ("e.bin", b"", "not empty"),
    "ids out of range": ("e.bin", np.array([[0, 1], [1, 99], [2, 1]], "<i4").tobytes(), "edge 1.*1 -> 99"),
    "negative pairs": ("e.bin", np.array([[0, 1], [-1, 2]], "<i4").tobytes(), "edge 1.*-1 -> 2"),
    "another kind": ("e.parquet", b"PAR1", "a file of edges ends in"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, case: str) -> None:
    name, content, message = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"(?s){message}"):
        stream = open_edges(tmp_path / name, num_nodes=50 if "range" in case or "pairs" in case else None)
        listed(stream)


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    (tmp_path / "e.tsv").write_text("0\t1\n1\tx\n")
    dataset = EdgeList(path=str(tmp_path / "e.tsv"), streamed=True)
    with pytest.raises(DataError, match="line 2"):
        prepare_graph(dataset, tmp_path / "cache")
    assert not any(path.is_dir() for path in (tmp_path / "cache" / "graphs").iterdir())


@pytest.mark.parametrize(
    ("room", "buffer_bytes", "said"),
    [
        (1000, 400, "needs room for all edges"),
        (1650, 400, "indices needs"),
        (1650, 1 << 20, "indices needs"),
    ],
    ids=["where edges wait", "where they stay", "where they go at once"],
)
def test_a_disk_that_fills_leaves_nothing_and_the_next_start_succeeds(
    tmp_path: Path, room: int, buffer_bytes: int, said: str
) -> None:
    """400 edges are 1,600 bytes, and a header more. With a small buffer, they first wait in a file."""
    EDGES.astype("<i4").tofile(tmp_path / "e.bin")
    dataset = EdgeList(
        path=str(tmp_path / "e.bin"),
        streamed=True,
        duplicates="keep",
        self_loops="keep",
        symmetrize=False,
        buffer_bytes=buffer_bytes,
    )
    whole, _ = prepare_graph(dataset, tmp_path / "elsewhere")
    with room_for(room), pytest.raises(DataError, match=rf"(?s){said}.*fix: make room there"):
        prepare_graph(dataset, tmp_path / "cache")
    assert list((tmp_path / "cache" / "graphs").iterdir()) == []
    graph, _ = prepare_graph(dataset, tmp_path / "cache")
    assert torch.equal(graph.indices, whole.indices) and graph.num_edges == 400


def test_archives_that_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    np.savez_compressed(tmp_path / "raw" / "data.npz", edge_index=EDGES.T)
    with pytest.raises(DataError, match="compressed"):
        open_edges(tmp_path)
    (tmp_path / "raw" / "data.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="whole archive"):
        open_edges(tmp_path)
    with pytest.raises(DataError, match="a folder of edges holds"):
        open_edges(tmp_path / "raw" / "..", None) if (tmp_path / "raw" / "data.npz").unlink() is None else None


def test_self_loops_cannot_be_added_to_a_stream(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be keep or remove if edges are streamed"):
        EdgeList(path=str(tmp_path), streamed=True, self_loops="add")


@pytest.mark.parametrize(
    "counts",
    [
        np.array([], int),
        np.array([3, 4]),
        np.array([np.nan]),
        np.array([0]),
        np.array(["5"]),
        np.array([2**63], np.uint64),
    ],
    ids=str,
)
def test_an_archive_whose_number_of_vertices_is_none(tmp_path: Path, counts: np.ndarray) -> None:
    (tmp_path / "raw").mkdir()
    np.savez(tmp_path / "raw" / "data.npz", edge_index=EDGES.T, num_nodes_list=counts)
    with pytest.raises(DataError, match="num_nodes_list"):
        open_edges(tmp_path)


@pytest.mark.parametrize("text", ["", "\n", "3,4\n"])
def test_a_raw_folder_whose_number_of_vertices_is_none(tmp_path: Path, text: str) -> None:
    for name, content in (("edge", "0,1\n"), ("num-node-list", text)):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write(content)
    with pytest.raises(DataError, match="num-node-list"):
        open_edges(tmp_path)


def test_an_archive_whose_edges_claim_the_bytes_of_others(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    content = np.lib.format.header_data_from_array_1_0(EDGES.T.copy())
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {**content, "shape": (2, 10**6)})
    with zipfile.ZipFile(tmp_path / "raw" / "data.npz", "w") as archive:
        archive.writestr("edge_index.npy", buffer.getvalue() + EDGES.T.tobytes())
    with pytest.raises(DataError, match="not those of"):
        open_edges(tmp_path)
