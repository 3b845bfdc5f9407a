"""The arrays of a graph: names on disk, dtypes, dimensions and lengths, for the format and for validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

SPLITS = ("train", "val", "test")
LINKS = ("train", "valid", "valid_neg", "test", "test_neg")
SPARSE = ("features_indptr", "features_columns", "features_values")


@dataclass(frozen=True)
class Field:
    """One array of a graph.

    Attributes:
        dtypes: allowed data types.
        dims: allowed numbers of dimensions.
        rows: required length, None if any length is allowed.
    """

    dtypes: tuple[torch.dtype, ...]
    dims: tuple[int, ...] = (1,)
    rows: Literal["V + 1", "V", "E"] | None = None


_INT32, _INT64, _FLOAT32 = (torch.int32,), (torch.int64,), (torch.float32,)
FIELDS: Mapping[str, Field] = {
    "indptr": Field(_INT64, rows="V + 1"),
    "indices": Field((torch.int32, torch.int64), rows="E"),
    "features": Field(_FLOAT32, (2,), "V"),
    "features_indptr": Field(_INT64, rows="V + 1"),
    "features_columns": Field(_INT32),
    "features_values": Field(_FLOAT32),
    "labels": Field((torch.int64, torch.float32, torch.float64), (1, 2), "V"),
    **{split: Field(_INT64) for split in SPLITS},
    "edge_types": Field(_INT32, rows="E"),
    "node_types": Field(_INT32, rows="V"),
    "edge_features": Field(_FLOAT32, (2,), "E"),
    "edge_weights": Field(_FLOAT32, rows="E"),
    **{f"links_{name}": Field(_INT64, (2,)) for name in LINKS},
}


def arrays_of(graph: Graph) -> dict[str, Tensor]:
    """The arrays of `graph` by their names on disk."""
    features = graph.features
    arrays: dict[str, Tensor | None] = {"indptr": graph.indptr, "indices": graph.indices}
    if isinstance(features, SparseRows):
        arrays |= dict(zip(SPARSE, (features.indptr, features.columns, features.values), strict=True))
    else:
        arrays["features"] = features
    arrays |= {
        name: getattr(graph, name) for name in ("labels", "edge_types", "node_types", "edge_features", "edge_weights")
    }
    arrays |= {split: getattr(graph.splits, split) for split in SPLITS}
    arrays |= {f"links_{name}": pairs for name, pairs in graph.links.items()}
    return {name: tensor for name, tensor in arrays.items() if tensor is not None}


def check_layout(
    arrays: Mapping[str, Tensor], num_nodes: int, num_edges: int, key: Callable[[str], str], fix: str
) -> list[Problem]:
    """Problems of arrays with a wrong name, dtype, dimension or length; reads no values.

    Args:
        arrays: arrays by their names on disk.
        num_nodes: V.
        num_edges: E.
        key: function from the name of an array to its name in messages.
        fix: fix that the problems name.
    """
    lengths = {"V + 1": num_nodes + 1, "V": num_nodes, "E": num_edges}
    problems = []
    for name, tensor in arrays.items():
        field = FIELDS.get(name)
        if field is None:
            problems.append(Problem(key(name), name, f"must be one of {', '.join(FIELDS)}", fix))
            continue
        if tensor.dtype not in field.dtypes:
            allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in field.dtypes)
            problems.append(Problem(key(name), str(tensor.dtype).removeprefix("torch."), f"must be {allowed}", fix))
        if tensor.dim() not in field.dims:
            allowed = " or ".join(map(str, field.dims))
            problems.append(Problem(key(name), list(tensor.shape), f"must have {allowed} dimensions", fix))
        elif field.rows is not None and tensor.shape[0] != lengths[field.rows]:
            problems.append(
                Problem(
                    key(name),
                    f"{tensor.shape[0]} rows",
                    f"must have {lengths[field.rows]} "
                    f"({field.rows}, with V = {num_nodes} vertices and E = {num_edges} edges)",
                    fix,
                )
            )
    return problems + _check_pairs(arrays, key, fix)


def _check_pairs(arrays: Mapping[str, Tensor], key: Callable[[str], str], fix: str) -> list[Problem]:
    problems = [
        Problem(key(name), list(tensor.shape), "must be [n, 2], or [n, 3] with a relation", fix)
        for name, tensor in arrays.items()
        if name.startswith("links_") and tensor.dim() == 2 and tensor.shape[1] not in (2, 3)
    ]
    here = {name for name in SPARSE if name in arrays}
    if here and here != set(SPARSE):
        problems += [
            Problem(key(name), None, "sparse features need all three arrays", fix)
            for name in SPARSE
            if name not in here
        ]
    elif here and arrays[SPARSE[1]].shape != arrays[SPARSE[2]].shape:
        problems.append(
            Problem(
                key(SPARSE[2]),
                list(arrays[SPARSE[2]].shape),
                f"must have one value per column entry: {list(arrays[SPARSE[1]].shape)}",
                fix,
            )
        )
    if here and "features" in arrays:
        problems.append(Problem(key("features"), "dense and sparse", "must be one or the other", fix))
    return problems
