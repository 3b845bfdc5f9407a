"""Every form of data set, with one or two of its files damaged as their formats invite."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random

from gnnexp.datasets.base import Dataset
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.validate import validate_graph
from gnnexp.preparation.artifacts import prepare_graph
from torture.fuzz.case import Case
from torture.fuzz.kinds.small_datasets import DATASETS
from torture.fuzz.mutate.arrays import matlab, npy, zipped
from torture.fuzz.mutate.packed import gz, tar
from torture.fuzz.mutate.pickles import opcodes
from torture.fuzz.mutate.raw import damaged, text
from torture.fuzz.mutate.trees import json_text

_NAMES = (
    "../escaped",
    "place/escaped.txt",
    "train.txt",
    "",
    ".",
    "a/" * 100 + "train.txt",
    "x/train.txt",
    "/tmp/escaped",
)


def make(random: Random) -> Case:
    """A data set that `Dataset.load` has to refuse, or to make a graph of that keeps all rules."""
    form = random.choice(sorted(DATASETS))
    dataset, files = _whole(form)
    names = random.sample(sorted(files), min(len(files), random.choice([1, 1, 1, 2])))
    harmed = {name: _damage(name)(files[name], random) for name in names}
    links = _link(names[0], harmed) if random.random() < 0.01 else None
    return Case(f"{form}: {', '.join(names)}", {**files, **harmed}, lambda: valid_graph(dataset), links=links)


def _link(name: str, files: dict[str, bytes]) -> dict[str, str]:
    """The file leads to one that is none of the data set's, under a name that no data set has."""
    other = f"{name}.other"
    files[other] = files.pop(name)
    return {other + ".link": other}


@lru_cache(maxsize=64)
def _whole(form: str) -> tuple[Dataset, Mapping[str, bytes]]:
    """The data set of a form, relative to the current folder, and the contents of its files."""
    here, place = Path.cwd(), Path("whole").absolute()
    place.mkdir()
    os.chdir(place)
    try:
        dataset = DATASETS[form]()
        files = {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}
    finally:
        os.chdir(here)
    shutil.rmtree(place)
    return dataset, files


def _damage(name: str) -> Callable[[bytes, Random], bytes]:
    """How files of this name are damaged."""
    if name.endswith(".tar.gz"):
        return _tar_gz
    if name.startswith("ind.") and not name.endswith("index"):
        return opcodes
    ends: dict[str, Callable[[bytes, Random], bytes]] = {
        ".gz": lambda content, random: gz(content, random, text),
        ".npz": zipped,
        ".pt": zipped,
        ".npy": npy,
        ".mat": matlab,
        ".json": json_text,
        ".bin": damaged,
    }
    return ends.get(Path(name).suffix, text)


def _tar_gz(content: bytes, random: Random) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = [(member, archive.extractfile(member)) for member in archive]
        members = [(member.name, file.read()) for member, file in files if file is not None]
    packed = gzip.compress(tar(members, random, text, _NAMES), 1)
    return damaged(packed, random) if random.random() < 0.2 else packed


def valid_graph(dataset: Dataset) -> Graph:
    """The graph, which must keep all rules but that it has something to train on."""
    if getattr(dataset, "streamed", False):
        return prepare_graph(dataset, cache_root())[0]  # written piece by piece, and judged there
    graph = dataset.load()
    broken = [one for one in validate_graph(graph, name="g") if one.key != "g: train" and one.value != "none"]
    assert not broken, f"a graph was accepted that breaks a rule: {broken[0]}"
    return graph
