"""Values of attributes as arrays: tensors of any kind and place, matrices of torch-sparse, arrays of numpy, scipy."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem

_MOST_COLUMNS = 1 << 31


def as_tensor(value: Any) -> Tensor | None:  # noqa: ANN401
    """The tensor of a value; None if it is no tensor, matrix or array of numbers."""
    if isinstance(value, Tensor):
        own = getattr(value, "as_tensor", None)  # PyG's EdgeIndex and Index
        return own() if own is not None else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        wide = value.dtype.kind == "u" and value.dtype.itemsize > 1  # torch has no arithmetic for them
        return torch.from_numpy(value.astype(np.int64) if wide else np.ascontiguousarray(value))
    if scipy.sparse.issparse(value):
        coo = cast("Any", value).tocoo()
        indices = torch.from_numpy(np.stack([coo.row, coo.col]))
        return torch.sparse_coo_tensor(indices, torch.from_numpy(coo.data), coo.shape, check_invariants=True)
    if hasattr(value, "coo") and hasattr(value, "sparse_sizes"):  # SparseTensor of torch-sparse
        row, column, values = value.coo()
        values = torch.ones(row.shape) if values is None else values
        return torch.sparse_coo_tensor(torch.stack([row, column]), values, value.sparse_sizes(), check_invariants=True)
    return None


def is_sparse(tensor: Tensor) -> bool:
    """Whether a tensor is a sparse matrix."""
    return tensor.layout is not torch.strided


def array(tensor: Tensor, key: str) -> np.ndarray:
    """The numbers of a dense tensor. Types of floats that numpy does not know become float32.

    Raises:
        DataError: the tensor has no real numbers.
    """
    if tensor.is_meta or tensor.is_complex() or tensor.is_quantized or tensor.is_nested or is_sparse(tensor):
        shown = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        raise DataError(
            Problem(
                key,
                shown,
                "must be a dense tensor of real numbers",
                "convert it before you save it: tensor.to_dense().float().cpu()",
            )
        )
    tensor = tensor.detach().cpu()
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    values: np.ndarray = tensor.resolve_conj().resolve_neg().numpy()
    return values


def entries(tensor: Tensor, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of a sparse matrix, in its order; also of a dense one.

    Raises:
        DataError: it is no matrix of real numbers.
    """
    if tensor.dim() != 2 or tensor.is_complex():
        raise DataError(
            Problem(
                key,
                f"{tensor.dtype} {list(tensor.shape)}",
                "must be a matrix of real numbers",
                "give edge_index [2, E]",
            )
        )
    coo: Tensor = tensor.detach().cpu().to_sparse_coo()  # type: ignore[no-untyped-call]
    indices = coo._indices()  # also of a matrix with repeated entries
    return array(indices[0], key), array(indices[1], key), array(coo._values(), key)


def pyg_rows(tensor: Tensor, count: int, key: str) -> np.ndarray | scipy.sparse.csr_array:
    """`[n, D]` features, dense or sparse. Further dimensions are flattened.

    Raises:
        DataError: there are not `count` rows, or values are no real numbers.
    """
    if tensor.dim() == 0 or tensor.shape[0] != count:
        raise DataError(
            Problem(
                key,
                list(tensor.shape),
                f"must have a row for each of the {count} vertices",
                "correct the attribute, or name another: dataset.features",
            )
        )
    if not is_sparse(tensor):
        dense = array(tensor, key)
        return dense.reshape(count, -1) if dense.size else np.zeros((count, 0), np.float32)
    if tensor.dim() != 2 or tensor.shape[1] >= _MOST_COLUMNS:
        raise DataError(Problem(key, list(tensor.shape), "must be a matrix of at most 2^31 columns", "use fewer"))
    row, column, values = entries(tensor, key)
    shape = count, int(tensor.shape[1])
    matrix: scipy.sparse.csr_array = scipy.sparse.coo_array((values.astype(np.float32), (row, column)), shape).tocsr()
    matrix.sum_duplicates()
    return matrix
