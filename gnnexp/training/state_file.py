"""What a file of a checkpoint may hold, checked before torch's loader sees it.

With `weights_only=True` the loader executes no foreign code. But it unpacks packed members, and it calls
`bytearray(n)`, `torch.Tensor(n)` and `_codecs.encode`, of which a chain doubles a text with each call: a few bytes of
a file fill the memory.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from gnnexp.datasets.reading.pickled import GLOBALS, Inert, PickledDict, Unpickler

_REBUILT = (
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_sparse_tensor",
)
_STORAGES = (
    "Float",
    "Double",
    "Half",
    "BFloat16",
    "Long",
    "Int",
    "Short",
    "Char",
    "Byte",
    "Bool",
    "ComplexFloat",
    "ComplexDouble",
)
_PICKLE = "data.pkl"  # torch looks for names whatever their case


class _Value(Inert):
    """An object of any kind. It takes any state."""

    def __init__(self, *_: object) -> None: ...

    def take(self, state: object) -> None:
        """Nothing is kept."""


class _Mapping(PickledDict):
    """An `OrderedDict`, which may have attributes: torch keeps versions of modules in one."""

    __slots__ = ()

    def take(self, state: object) -> None:
        """Nothing is kept."""


class _StateUnpickler(Unpickler):
    """Follows a pickle without making what it names: it only stops at what a state has not."""

    known: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("_codecs", "encode"): GLOBALS["_codecs", "encode"],
        ("collections", "OrderedDict"): _Mapping,
        **{("torch._utils", name): _Value for name in _REBUILT},
        **{("torch", f"{name}Storage"): None for name in _STORAGES},
        ("torch.storage", "UntypedStorage"): None,  # named by tensors of the types without a storage of their own
        **dict.fromkeys(
            [
                ("torch._tensor", "_rebuild_from_type_v2"),
                ("torch.nn.parameter", "Parameter"),
                ("torch", "Size"),
                ("torch", "device"),
                ("torch.serialization", "_get_layout"),
                ("collections", "Counter"),
                *((module, name) for module in ("builtins", "__builtin__") for name in ("set", "complex")),
            ],
            _Value,
        ),
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """What stands for a global. Data types of torch are values, which nothing can call."""
        import torch

        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return None
        return super().find_class(module, name)

    def _storage(self) -> None:
        self.stack[-1] = None

    # Of the same type as the base's, which refuses all other opcodes.
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = type(Unpickler.dispatch)(
        {**Unpickler.dispatch, b"Q"[0]: _storage}
    )


def check_state_file(path: Path) -> None:
    """Refuse a file that can take far more memory than it has bytes. Sizes of tensors are for torch's loader.

    Raises:
        OSError: the file cannot be read.
        Exception: the file is refused, or damaged: a damaged pickle can raise any exception.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        pickles = [member for member in members if member.filename.lower().endswith(_PICKLE)]
        # Readers of archives may disagree about bytes before the first member, and about two members of one name.
        if len(pickles) != 1 or min(member.header_offset for member in members):
            raise ValueError("it is not an archive of torch")
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if packed or sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("its members are compressed or larger than the file")
        content = archive.read(pickles[0])
    _StateUnpickler(io.BytesIO(content), len(content)).load()
