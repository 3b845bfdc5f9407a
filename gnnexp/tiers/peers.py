"""Rows in the memory of several GPUs of one machine, which kernels of each of these GPUs read (CUDA IPC, peer access).

Each rank maps the rows of the other ranks. For this, torch shares tensors between processes by
`torch.multiprocessing.reductions`: it keeps the owner's memory from other use until all readers let go of it. Ranks
that share a GPU map each other's rows as well: CUDA opens a handle in any process but the owner's.

torch maps memory for the GPU on which the rows are. A kernel of another GPU could not read it. So each rank asks for
its own GPU, as NCCL does: CUDA then gives that GPU access to the other one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import Refusal
from gnnexp.tiers.pinned import this_machine

_ARGUMENTS = tuple(inspect.signature(rebuild_cuda_tensor).parameters)
_CLASSES = {"tensor_cls": Tensor, "storage_cls": torch.storage.TypedStorage}


@dataclass(frozen=True, eq=False)
class PeerRows:
    """Rows of all ranks, for kernels of this rank's GPU.

    Attributes:
        bases: `[ranks]` int64 on the GPU: address of each rank's first row; 0 if the rank has no rows.
        mapped: rows of the other ranks that have rows. They stay mapped as long as these tensors exist.
    """

    bases: Tensor
    mapped: list[Tensor]


def peer_rows(
    rows: Tensor | None,
    comm: Communicator,
    device: torch.device,
    why_not: str | None,
    fault_of: Callable[[PeerRows], str | None],
) -> PeerRows | Refusal:
    """Map the rows of all ranks of `comm`. All ranks call this, and all or none of them succeed.

    A rank frees its rows only after all ranks have finished reading.

    Args:
        rows: `[n, D]` of this rank on its GPU, contiguous; None if `why_not` says why it has none.
        comm: the ranks that read each other's rows.
        device: device of this rank.
        why_not: why this rank cannot take part; None: it can.
        fault_of: reads rows of all ranks, and says what is wrong with them; None if nothing is.

    Returns:
        The rows, or on all ranks the same reason why they cannot be read.
    """
    places: Any = comm.gather_objects((this_machine(), _gpu(device)))
    if refusal := _refusal_of(comm.gather_objects(why_not or _why_apart(places, comm.rank, device))):
        return refusal
    assert rows is not None
    offers, error = _tried(lambda: [_offer(rows) if rank != comm.rank else None for rank in range(comm.size)])
    gathered: Any = comm.gather_objects((offers, error))
    if refusal := _refusal_of(reason for _, reason in gathered):
        return refusal
    mapped, error = _tried(lambda: [_mapped(of_rank[comm.rank], device) for of_rank, _ in gathered])
    if refusal := _refusal_of(comm.gather_objects(error)):
        return refusal
    mapped[comm.rank] = rows
    bases = torch.tensor([0 if part is None else part.data_ptr() for part in mapped]).to(device)
    peers = PeerRows(bases, [part for part in mapped if part is not None and part is not rows])
    fault, error = _tried(lambda: fault_of(peers))
    return _refusal_of(comm.gather_objects(error or fault)) or peers


def _refusal_of(reasons: Iterable[str | None]) -> Refusal | None:
    """The reason of the lowest rank that has one; None if none has."""
    return next((Refusal(reason) for reason in reasons if reason), None)


def _gpu(device: torch.device) -> str:
    """The GPU of this rank; empty on a CPU. UUIDs, because each SLURM task may see one GPU as number 0."""
    return "" if device.type != "cuda" else str(torch.cuda.get_device_properties(device).uuid)


def _why_apart(places: Sequence[tuple[tuple[str, str], str]], rank: int, device: torch.device) -> str | None:
    """Why this rank's GPU cannot read another rank's GPU, as far as CUDA says it before memory is mapped; or None."""
    machine, gpu = places[rank]
    seen = {_gpu(torch.device("cuda", number)): number for number in range(torch.cuda.device_count())}
    for other, (elsewhere, its_gpu) in enumerate(places):
        if elsewhere != machine:
            return f"ranks {rank} and {other} of the clique are on different machines or in different containers"
        # A GPU that this process does not see may be readable: mapping its memory will tell.
        if its_gpu != gpu and its_gpu in seen and not torch.cuda.can_device_access_peer(device, seen[its_gpu]):
            return f"the GPU of rank {rank} of the clique has no peer access to the GPU of rank {other}"
    return None


def _offer(rows: Tensor) -> Sequence[Any] | None:
    """What one other rank needs to map the rows. torch counts the readers of a tensor by its offers.

    Classes are left out, since none crosses between ranks: tensors and storages have the usual ones.
    """
    if not rows.nbytes:
        return None
    whole = zip(_ARGUMENTS, reduce_tensor(rows)[1], strict=True)  # type: ignore[no-untyped-call]
    return [value for name, value in whole if name not in _CLASSES]


def _mapped(offer: Sequence[Any] | None, device: torch.device) -> Tensor | None:
    """Another rank's tensor, mapped for this rank's GPU."""
    if offer is None:
        return None
    names = [name for name in _ARGUMENTS if name not in _CLASSES]
    arguments = {**_CLASSES, **dict(zip(names, offer, strict=True)), "storage_device": device.index}
    mapped: Tensor = rebuild_cuda_tensor(**arguments)  # type: ignore[no-untyped-call]
    return mapped


def _tried(work: Callable[[], Any]) -> tuple[Any, str | None]:
    """The result of `work`, or the error of CUDA or Triton: the other ranks must hear of it."""
    try:
        return work(), None
    except RuntimeError as error:
        return None, (str(error).splitlines() or [type(error).__name__])[0]
