"""Tensors that are next to graphs of DGL, in files of `torch.save`.

torch's loader allocates what a file asks for, also with `weights_only=True`. It unpacks packed members, and calls
`bytearray(n)`. gnnexp reads these files itself, and compares sizes with the bytes of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from gnnexp.datasets.formats.dgl.arrays import array_of_tensor
from gnnexp.datasets.formats.pyg.torch_file import TorchFile
from gnnexp.datasets.reading.pickled import PickledDict

_FIX = "save it again with torch.save(tensor, path)"


def read_tensors(path: Path) -> np.ndarray | dict[object, np.ndarray] | None:
    """The only dense tensor in a file, or those of a dictionary by their keys; None for other content.

    Keys are texts, or tuples of them.

    Raises:
        DataError: the file is missing or damaged, or a tensor does not fit its bytes.
    """
    file = TorchFile(path, _FIX)
    content = file.content()
    if not isinstance(content, PickledDict):
        return _array(file, content)
    return {key: values for key, value in _named(content.pairs) if (values := _array(file, value)) is not None}


def _named(pairs: Iterable[tuple[object, object]]) -> list[tuple[object, object]]:
    """The pairs with keys that are texts, or tuples of them: Python hashes these with a secret, so none collide."""
    return [
        (key, value)
        for key, value in pairs
        if isinstance(key, str) or (isinstance(key, tuple) and all(isinstance(one, str) for one in key))
    ]


def _array(file: TorchFile, value: object) -> np.ndarray | None:
    found = file.value(value)
    dense = isinstance(found, torch.Tensor) and found.layout == torch.strided
    return array_of_tensor(found) if dense else None
