"""Links of OGB's link-property datasets: the files `train.pt`, `valid.pt` and `test.pt` of a split."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch

from gnnexp.datasets.base import require
from gnnexp.datasets.reading.npz import DAMAGE
from gnnexp.datasets.reading.ogb_raw import FORMAT_FIX, OgbRaw
from gnnexp.datasets.reading.pickled import PickledDict
from gnnexp.datasets.reading.unpickle import Pickles, as_array
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file

SPLITS = ("train", "valid", "test")
_NEGATIVES = (
    "OGB's own negatives of each link are not read: a link is ranked among all vertices, so figures are "
    "others than OGB's"
)


def link_files(folder: Path) -> dict[str, Path]:
    """The files of a split by name. `train.pt` may be missing: training links are the edges then.

    Raises:
        DataError: another file is missing.
    """
    names = SPLITS if is_file(folder / "train.pt") else SPLITS[1:]
    paths = {name: folder / f"{name}.pt" for name in names}
    require(paths.values(), FORMAT_FIX)
    return paths


def read_links(folder: Path, raw: OgbRaw) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Links by name, `[n, 2]` ids, or `[n, 3]` heads, relations and tails; and notes.

    Three forms are published: `edge` and `edge_neg` (ddi, collab, ppa, vessel), `source_node` and `target_node`
    (citation2), and `head`, `relation` and `tail` (wikikg2; with types of vertices biokg).

    Raises:
        DataError: a file is missing, damaged or of another form, or has ids that are no vertices.
    """
    files = link_files(folder)
    links: dict[str, np.ndarray] = {}
    ranked = False
    for name, path in files.items():
        content = read_pt(path)
        if "head" in content.named():
            links[name], ranked = _triples(content, path, raw), True
        elif {"source_node", "target_node"} <= content.named().keys():
            ends = [_numbers(content, part, path, raw.num_nodes) for part in ("source_node", "target_node")]
            links[name], ranked = _stacked(ends, path), True
        else:
            links[name] = _pairs(content, "edge", path, raw.num_nodes)
            if name != "train":
                links[f"{name}_neg"] = _pairs(content, "edge_neg", path, raw.num_nodes)
    if "train" not in files:
        relations = raw.relations if raw.types is None else raw.types.edges
        columns = (
            [raw.edges] if relations is None or not ranked else [raw.edges[:, :1], relations[:, None], raw.edges[:, 1:]]
        )
        links = {"train": np.hstack(columns).astype(np.int64), **links}
    return {name: torch.from_numpy(pairs) for name, pairs in links.items()}, (_NEGATIVES,) * ranked


def _triples(content: PickledDict, path: Path, raw: OgbRaw) -> np.ndarray:
    """`[n, 3]` heads, relations and tails, as ids among all vertices and numbers of relations of the graph."""
    ends = []
    for role in ("head", "tail"):
        ids = _numbers(content, role, path, raw.num_nodes)
        ends.append(ids if raw.types is None else ids + _starts(content, f"{role}_type", path, raw, ids))
    count = raw.num_relations if raw.types is None else raw.types.num_relations
    relations = _numbers(content, "relation", path, count)
    if raw.types is not None and raw.types.relation_numbers:
        numbers = np.full(count, -1, np.int64)
        for own, number in enumerate(raw.types.relation_numbers):
            numbers[number] = own
        relations = numbers[relations]
    return _stacked([ends[0], relations, ends[1]], path)


def _starts(content: PickledDict, name: str, path: Path, raw: OgbRaw, ids: np.ndarray) -> np.ndarray:
    """`[n]` first vertex of the type of each end.

    Raises:
        DataError: there are not n known types, or an id is none of its type.
    """
    assert raw.types is not None
    kinds, ranges = content.named().get(name), raw.types.ranges
    known = (
        isinstance(kinds, list)
        and len(kinds) == ids.size
        and all(isinstance(kind, str) and kind in ranges for kind in kinds)
    )
    if not known or not isinstance(kinds, list):
        raise DataError(
            Problem(
                f"{path}: {name}",
                type(kinds).__name__,
                f"must be {ids.size} of the types {', '.join(ranges)}",
                FORMAT_FIX,
            )
        )
    starts = np.array([ranges[kind].start for kind in kinds], np.int64)
    sizes = np.array([len(ranges[kind]) for kind in kinds], np.int64)
    if (ids >= sizes).any():
        raise DataError(Problem(f"{path}: {name}", int(ids[ids >= sizes][0]), "must be an id of its type", FORMAT_FIX))
    return starts


def _numbers(content: PickledDict, name: str, path: Path, high: int) -> np.ndarray:
    """`[n]` int64 from 0 to below `high`."""
    key, values = f"{path}: {name}", content.named()
    if name not in values:
        raise DataError(Problem(key, f"has {str(sorted(values))[:200]}", "this array is needed", FORMAT_FIX))
    array = as_array(values[name], key)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not _are_within(array, high):
        raise DataError(Problem(key, f"{array.dtype} {array.shape}", f"must be [n] numbers below {high}", FORMAT_FIX))
    return array.astype(np.int64)


def _are_within(array: np.ndarray, high: int) -> bool:
    return array.size == 0 or 0 <= int(array.min()) <= int(array.max()) < high


def _stacked(columns: list[np.ndarray], path: Path) -> np.ndarray:
    if len({column.size for column in columns}) > 1:
        raise DataError(
            Problem(str(path), str([column.size for column in columns]), "must be as many of each", FORMAT_FIX)
        )
    return np.stack(columns, axis=1)


def _pairs(content: PickledDict, name: str, path: Path, num_nodes: int) -> np.ndarray:
    key, values = f"{path}: {name}", content.named()
    if name not in values:
        allowed = "pairs `edge` and `edge_neg` are needed"
        raise DataError(Problem(key, f"has {str(sorted(values))[:200]}", allowed, FORMAT_FIX))
    pairs = as_array(values[name], key)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not _are_within(pairs, num_nodes):
        raise DataError(Problem(key, f"{pairs.dtype} {pairs.shape}", f"pairs of ids below {num_nodes}", FORMAT_FIX))
    return pairs.astype(np.int64)


def read_pt(path: Path) -> PickledDict:
    """A dictionary of numpy arrays saved by torch, which `torch.load(weights_only=True)` refuses.

    Raises:
        DataError: the file is missing or damaged, or has anything else.
    """
    file = Pickles.of_file(path)
    zipped = file.content.startswith(b"PK")
    # Legacy torch files: magic number, protocol, system, the object, storage keys.
    content = Pickles(_zipped_pickle(file.content, path), str(path)).load() if zipped else file.load_all(4)[3]
    if not isinstance(content, PickledDict):
        raise DataError(Problem(str(path), type(content).__name__, "must be a dictionary of arrays", FORMAT_FIX))
    return content


def _zipped_pickle(raw: bytes, path: Path) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            # torch stores without compression, so a member that claims to be larger than the file is refused.
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(raw):
                raise zipfile.BadZipFile("compressed")
            return archive.read(name)
    except (*DAMAGE, StopIteration) as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be a file of torch.save", FORMAT_FIX)) from None
