"""Knowledge graphs from files of triples, in a folder and in an archive."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.datasets.published.triples import Triples
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph

Find = Callable[[str], Path]
FILES = {
    "train.txt": "b\tlikes\ta\na\tknows\tc\nb\tlikes\ta\nc\tknows\tc\n",
    "valid.txt": "a\tlikes\tc\n",
    "test.txt": "d\tknows\ta\r\nb\towns\tc\r\n",
}


def put_folder(folder: Path, **changes: str) -> Triples:
    folder.mkdir(exist_ok=True)
    for name, text in {**FILES, **{f"{name}.txt": text for name, text in changes.items()}}.items():
        (folder / name).write_text(text, newline="", encoding="utf-8")
    return Triples(path=str(folder))


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info


def put_archive(path: Path, *others: tarfile.TarInfo, files: dict[str, str] | None = None) -> Triples:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (FILES if files is None else files).items():
            archive.addfile(member(name, size=len(text.encode())), io.BytesIO(text.encode()))
        for info in others:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return Triples(path=str(path))


def edges(graph: Graph) -> list[tuple[int, ...]]:
    assert graph.edge_types is not None
    return sorted(zip(graph.indices.tolist(), graph.edge_types.tolist(), graph.destinations().tolist(), strict=True))


def test_a_line_of_names_is_refused(tmp_path: Path) -> None:
    named = {name.removesuffix(".txt"): "head\trelation\ttail\n" + lines for name, lines in FILES.items()}
    with pytest.raises(DataError, match=r"train\.txt, line 1.*has names of columns") as error:
        put_folder(tmp_path, **named).load()
    assert len(error.value.problems) == 3
    same = {name.removesuffix(".txt"): "a\tlikes\tb\n" + lines for name, lines in FILES.items()}
    assert put_folder(tmp_path, **same).load().links["test"].shape[0] == 3, "a triple may begin all files"


def test_numbers_names_and_inverses(tmp_path: Path) -> None:
    graph = put_folder(tmp_path).load()
    # a, b, c, d = 0..3; knows, likes, owns = 0..2, inverses from 3 on; the repeated triple is one edge.
    forward = [(0, 0, 2), (1, 1, 0), (2, 0, 2)]
    assert edges(graph) == sorted([*forward, *((v, r + 3, u) for u, r, v in forward)])
    assert {name: found.tolist() for name, found in graph.links.items()} == {
        "train": [[1, 1, 0], [0, 0, 2], [1, 1, 0], [2, 0, 2]],
        "valid": [[0, 1, 2]],
        "test": [[3, 0, 0], [1, 2, 2]],
    }
    assert graph.num_nodes == 4
    assert graph.notes == (
        "4 entities, 3 relations",
        "1 entities are in no training triple; 0 valid, 1 test triples have one of them",
        "1 relations are in no training triple",
    )
    directed = Triples(path=str(tmp_path), symmetrize=False).load()
    assert edges(directed) == forward
    assert edges(Triples(path=str(tmp_path), inverse_relations=False).load()) == sorted(
        {*forward, *((v, r, u) for u, r, v in forward)}
    )


def test_ids_do_not_depend_on_order_or_split(tmp_path: Path) -> None:
    first = put_folder(tmp_path / "one").load()
    lines = FILES["train.txt"].splitlines(keepends=True)
    shuffled = put_folder(tmp_path / "two", train="".join(lines[::-1])).load()
    assert edges(shuffled) == edges(first)
    swapped = put_folder(tmp_path / "three", valid=FILES["test.txt"], test=FILES["valid.txt"]).load()
    assert edges(swapped) == edges(first)
    assert torch.equal(swapped.links["test"], first.links["valid"])


def test_an_archive_is_its_folder(tmp_path: Path) -> None:
    archive, folder = put_archive(tmp_path / "x.tar.gz", member("readme", size=7)), put_folder(tmp_path / "folder")
    assert edges(archive.load()) == edges(folder.load())
    (tmp_path / "place").mkdir()
    (tmp_path / "x.tar.gz").rename(tmp_path / "place" / "x.tar.gz")
    assert Triples(path=str(tmp_path / "place")).sources() == [tmp_path / "place" / "x.tar.gz"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../train.txt"),
        member("/etc/x"),
        member("link", tarfile.SYMTYPE),
        member("link", tarfile.LNKTYPE),
        member("folder", tarfile.DIRTYPE),
        member("pipe", tarfile.FIFOTYPE),
        member("train.txt"),
        member("sparse", tarfile.GNUTYPE_SPARSE),
    ],
    ids=lambda info: f"{info.name} {info.type!r}",
)
def test_archives_of_anything_else_are_refused(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.tar\.gz"):
        put_archive(tmp_path / "x.tar.gz", bad).load()


def test_archives_that_claim_too_much(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    many = [member(f"file{number}") for number in range(70)]
    claims = member("train.txt", size=1 << 40).tobuf() + FILES["train.txt"].encode()
    for content, found in (
        (gzip.compress(bytes(1 << 25)), "unpacks to more"),
        (gzip.compress(claims), "claims"),
        (path.read_bytes()[:60] if put_archive(path) else b"", r"x\.tar\.gz"),
        (path.read_bytes() if put_archive(path, *many) else b"", "too many"),
        (b"no archive", r"x\.tar\.gz"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=found):
            Triples(path=str(path)).load()


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test\.txt"):
        put_archive(tmp_path / "x.tar.gz", files={name: FILES[name] for name in ("train.txt", "valid.txt")}).load()
    put_folder(tmp_path / "folder")
    (tmp_path / "folder" / "valid.txt").unlink()
    with pytest.raises(DataError, match=r"valid\.txt"):
        Triples(path=str(tmp_path / "folder")).sources()


def test_wrong_lines_of_several_files_are_said_at_once(tmp_path: Path) -> None:
    dataset = put_folder(tmp_path, train="a\tr\tb\n\na r b\na\tr\n\tr\tb\n" + "x\n" * 9, test="")
    with pytest.raises(DataError) as caught:
        dataset.load()
    named = [Path(one.key).name for one in caught.value.problems]
    assert named == [*(f"train.txt, line {number}" for number in (3, 4, 5, 6, 7)), "test.txt"]
    (tmp_path / "train.txt").write_bytes(b"\xff\xfe\t\t")
    with pytest.raises(DataError, match="UTF-8"):
        dataset.load()


def test_fb15k_237(real: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(real("fb15k-237").parent))
    graph = Triples(name="fb15k-237").load()
    assert (graph.num_nodes, graph.num_edges, graph.num_relations) == (14541, 2 * 272115, 2 * 237)
    assert {name: found.shape[0] for name, found in graph.links.items()} == {
        "train": 272115,
        "valid": 17535,
        "test": 20466,
    }
    assert sum(int((found[:, 0] == found[:, 2]).sum()) for found in graph.links.values()) == 1806
    unseen = "36 entities are in no training triple; 9 valid, 28 test triples have one of them"
    assert graph.notes == ("14541 entities, 237 relations", unseen)
