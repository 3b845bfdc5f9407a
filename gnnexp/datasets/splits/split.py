"""Random splits. They depend on seed and vertex only, and not on order, file format or machine."""

from __future__ import annotations

import numpy as np
import torch

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Splits
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, absorb, stream


@compiled(nogil=True)
def _vertex_words(key: np.uint64, num_nodes: int) -> np.ndarray:
    words = np.empty(num_nodes, np.uint64)
    for vertex in range(num_nodes):
        words[vertex] = absorb(key, np.uint64(vertex))
    return words


def vertex_words(seed: int, num_nodes: int) -> np.ndarray:
    """`[V]` uint64 random word of each vertex. Vertices with the smallest words are drawn first."""
    words: np.ndarray = _vertex_words(np.uint64(stream(seed, Purpose.SPLIT)), num_nodes)
    return words


def check_fractions(**shares: float | None) -> None:
    """Check that the shares of a split, by config key, are in [0, 1] and do not add up to more than 1.

    Raises:
        ConfigError: names all problems.
    """
    known = {name: share for name, share in shares.items() if share is not None}
    problems = [
        Problem(f"dataset.{name}", share, "a share from 0 to 1", f"set dataset.{name}=0.2")
        for name, share in known.items()
        if not 0 <= share <= 1
    ]
    if not problems and sum(known.values()) > 1 + 1e-9:
        keys = ", ".join(f"dataset.{name}" for name in known)
        problems.append(Problem(keys, list(known.values()), "must not add up to more than 1", "reduce one of them"))
    ConfigError.raise_all(problems)


def random_split(
    num_nodes: int,
    train: float,
    val: float,
    *,
    seed: int,
    test: float | None = None,
    among: np.ndarray | None = None,
) -> Splits:
    """Disjoint random sets of vertices, with the given shares of `among`. Sizes are rounded.

    Args:
        num_nodes: V, number of vertices.
        train: share of training vertices.
        val: share of validation vertices.
        seed: seed of the draw.
        test: share of test vertices; None: all others.
        among: `[V]` bool, vertices that may be drawn (the labelled ones); None: all.
    """
    words = vertex_words(seed, num_nodes)
    ids = np.arange(num_nodes) if among is None else np.flatnonzero(among)
    num_train, num_val = round(train * ids.size), round(val * ids.size)
    num_test = ids.size - num_train - num_val if test is None else round(test * ids.size)
    ends = np.minimum(np.cumsum([num_train, num_val, num_test]), ids.size)
    return Splits(*_by_rank(words[ids], ids, ends))


def bounds_of_ranks(words: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """`[k]` uint64 bounds: exactly `ends[i]` words are below the i-th bound. Does not sort all words."""
    ranked = np.concatenate([words, np.full(1, np.iinfo(np.uint64).max, np.uint64)])
    ranked.partition(np.unique(ends))
    bounds: np.ndarray = ranked[ends]
    return bounds


def _by_rank(words: np.ndarray, ids: np.ndarray, ends: np.ndarray) -> list[torch.Tensor]:
    """Three sorted lists of `ids`: those whose words have ranks in `[0, e0)`, `[e0, e1)`, `[e1, e2)`."""
    parts, low = [], np.uint64(0)
    for high in bounds_of_ranks(words, ends):
        parts.append(torch.from_numpy(ids[(words >= low) & (words < high)].astype(np.int64)))
        low = high
    return parts


def per_class_split(labels: np.ndarray, num_train: int, num_val: int, *, seed: int, among: np.ndarray) -> Splits:
    """The split of Shchur et al. 2018: fixed numbers of training and validation vertices per class; the rest is test.

    Args:
        labels: `[V]` int64, negative = unlabelled.
        num_train: training vertices per class.
        num_val: validation vertices per class.
        seed: seed of the draw.
        among: `[V]` bool, vertices that may be drawn.

    Raises:
        DataError: a class has too few vertices.
    """
    words = vertex_words(seed, labels.size)
    among = among & (labels >= 0)
    roles = np.full(labels.size, 2, np.int8)
    problems = []
    for label in np.unique(labels[among]):
        members = np.flatnonzero(among & (labels == label))
        if members.size <= num_train + num_val:
            allowed = f"more than {num_train + num_val} vertices per class for this split"
            problems.append(Problem(f"class {label}", int(members.size), allowed, "use dataset.split=random"))
        members = members[np.argsort(words[members], kind="stable")]
        roles[members[:num_train]] = 0
        roles[members[num_train : num_train + num_val]] = 1
    DataError.raise_all(problems)
    return Splits(*(torch.from_numpy(np.flatnonzero(among & (roles == role))) for role in range(3)))


def given_split(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Splits:
    """A published split as sorted int64 ids. Each part is given as ids or as a mask `[V]` bool."""
    ids = [np.flatnonzero(part) if part.dtype == bool else np.sort(part) for part in (train, val, test)]
    return Splits(*(torch.from_numpy(part.astype(np.int64, copy=False)) for part in ids))
