"""Collectives with a purpose: every exchange is tagged, timed and counted to the byte.

Time spent waiting for the slowest rank is not communication. Before each payload exchange all ranks therefore meet in
a barrier, which is timed as the phase `wait`. The time of the exchange itself stays in the caller's phase and in the
ledger. An uneven exchange starts with an exchange of sizes, a few bytes: it replaces the barrier, and is timed as
`wait` too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.distributed_c10d import _get_default_group

from gnnexp.comm.background import Background
from gnnexp.comm.carrier import Carrier, TorchCarrier
from gnnexp.comm.environment import Environment
from gnnexp.comm.meeting import answers_in_time, prove, store_of
from gnnexp.comm.mesh import Mesh
from gnnexp.comm.wire import WireError, pack, unpack
from gnnexp.files.private import secret_of
from gnnexp.measure.available import available_memory
from gnnexp.measure.ledger import Ledger, Tag, Traffic, all_reduce_bytes
from gnnexp.measure.phases import PhaseTimer

STAGED = "gloo, staged through pinned host memory"


@dataclass(frozen=True)
class Meeting:
    """The ranks have met.

    Attributes:
        carrier: the name of the backend that carries payloads.
        secret: what each connection proves to know; None for ranks of tests.
        store: through which later groups find each other. torch keeps only the half of it that is in C++: without the
            half in Python, groups cannot be made.
    """

    carrier: str = "none"
    secret: bytes | None = None
    store: Store | None = None


def connect(environment: Environment, device: torch.device, timeout_s: float, run_dir: Path | None = None) -> Meeting:
    """Join the process group: through a file of the run, or the launcher's rendezvous (MASTER_ADDR, MASTER_PORT).

    NCCL carries GPU tensors if every rank has its own GPU. Gloo always carries host tensors, sizes, objects and
    barriers, which would otherwise wait for the GPU. If ranks share a GPU, gloo carries everything, staged through
    pinned host memory.

    Args:
        environment: this process's place in the run.
        device: where payloads live.
        timeout_s: seconds that each step of it may take.
        run_dir: directory of the run, whose secret all ranks prove to each other; None for ranks of tests.

    Raises:
        ForeignPeerError: somebody else takes part.
    """
    if environment.num_ranks == 1:
        return Meeting()
    if dist.is_initialized():  # the caller keeps its own group (a pool of test ranks, a notebook)
        return Meeting(_carrier(device))
    timeout = timedelta(seconds=timeout_s)
    with answers_in_time(timeout_s):
        store = store_of(environment, timeout, run_dir)
        backend = "gloo"
        if _has_own_gpus(environment, device, store):
            backend = "cpu:gloo,cuda:nccl"
            # Prefetching and training exchange at the same time, in separate groups: NCCL keeps the order of launches.
            os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
        dist.init_process_group(
            backend, store=store, rank=environment.rank, world_size=environment.num_ranks, timeout=timeout
        )
    secret = None if run_dir is None else secret_of(run_dir)
    if secret is not None:
        prove(None, environment.rank, environment.num_ranks, secret)
    return Meeting(_carrier(device), secret, store)


def _has_own_gpus(environment: Environment, device: torch.device, store: Store) -> bool:
    """Whether each rank has a GPU that no other rank has. All ranks get the same answer.

    GPUs are compared by their UUIDs: each SLURM task sees one GPU as number 0, so numbers do not identify GPUs.
    """
    own = "" if device.type != "cuda" else str(torch.cuda.get_device_properties(device).uuid)
    store.set(f"gnnexp/gpu/{environment.rank}", own)
    gpus = [store.get(f"gnnexp/gpu/{rank}") for rank in range(environment.num_ranks)]
    return all(gpus) and len(set(gpus)) == len(gpus)


def _carrier(device: torch.device, group: dist.ProcessGroup | None = None) -> str:
    """The backend's own name for what carries payloads on `device`; an emulated NCCL says that it is one."""
    name = str((_get_default_group() if group is None else group)._get_backend(device).name())
    return STAGED if device.type == "cuda" and name == "gloo" else name


class Communicator:
    """The collectives of one run, or of a group of its ranks.

    Attributes:
        rank, size: this rank's index among the participating ranks, and their number.
        device: where payload tensors live.
        ledger: traffic of all groups of the run since it was last taken.
    """

    def __init__(
        self,
        environment: Environment,
        timer: PhaseTimer,
        device: torch.device,
        ledger: Ledger | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        group: dist.ProcessGroup | None = None,
        timeout_s: float = 300.0,
        throttle: float | None = None,
        halved: frozenset[Tag] = frozenset(),
        meeting: Meeting | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """Collectives over all ranks. `along` and `clone_for_thread` pass `ledger`, `groups` and `group`.

        Args:
            environment: this process's place in the run.
            timer: charged with `wait`.
            device: where payload tensors live.
            ledger: where traffic is recorded, None for a new one.
            groups: the run's ranks, grouped by who takes part together; None: all ranks take part.
            group: torch's process group that contains this rank, None for the default group.
            throttle: bandwidth in bytes per second and direction that exchanges are slowed down to; None: unlimited.
            halved: tags whose rows are sent in bfloat16 (`all_to_all`, `broadcast`). Callers round rows before, so that
                they arrive as they were.
            timeout_s: timeout of groups that are made from this one; torch's own default is half an hour.
            meeting: what `connect` returned, for groups that are made from this one.
            carrier: what carries payloads; None: `group`.
        """
        self._environment = environment
        self._groups = [list(range(environment.num_ranks))] if groups is None else [list(members) for members in groups]
        (self._ranks,) = (ranks for ranks in self._groups if environment.rank in ranks)
        self.rank, self.size = self._ranks.index(environment.rank), len(self._ranks)
        self.device = device
        self._timer, self.ledger = timer, Ledger() if ledger is None else ledger
        self._timeout_s, self._throttle = timeout_s, throttle
        self._carrier = TorchCarrier(group, self._ranks) if carrier is None else carrier
        self._halved, self._meeting = halved, meeting or Meeting()
        self._met = False  # whether an exchange of sizes has just synchronised all ranks
        self._process_groups: list[dist.ProcessGroup] = []
        self._children: list[Communicator] = []
        self._background: Background | None = None
        self._staged = self.size > 1 and carrier is None and _carrier(device, group) == STAGED

    def along(self, mesh: Mesh, axis: str) -> Communicator:
        """Collectives among the ranks of this rank's group along an axis. All ranks of the run call this.

        Args:
            mesh: all ranks of the run. A group along the axis has ranks of this communicator only.
            axis: name of the axis.
        """
        groups = mesh.groups(axis)
        (own,) = (group for group in groups if self._environment.rank in group)
        assert set(own) <= set(self._ranks), "a group has ranks of this communicator only"
        return self if own == self._ranks else self._among(groups, self.device)

    def clone_for_thread(
        self, device: torch.device | None = None, background: Background | None = None
    ) -> Communicator:
        """Collectives among the same ranks, for use by one other thread at the same time. All ranks call this.

        Args:
            device: where the thread's payloads live, None for the host.
            background: the thread, if its exchanges may be under way when the run ends: `release` waits for them.
        """
        other = self._among(self._groups, torch.device("cpu") if device is None else device)
        other._background = background
        return other

    def _among(self, groups: Sequence[Sequence[int]], device: torch.device) -> Communicator:
        (own,) = (members for members in groups if self._environment.rank in members)
        carrier, group = self._carrier.among(own, self._environment.rank), None
        if carrier is None:
            with self._timer.activity.exchange(), answers_in_time(self._timeout_s):  # waits for the others' addresses
                group = self._new_group(groups, "gloo" if device.type == "cpu" else None)
        communicator = Communicator(
            self._environment,
            self._timer,
            device,
            self.ledger,
            groups,
            group,
            self._timeout_s,
            self._throttle,
            self._halved,
            self._meeting,
            carrier,
        )
        if group is not None and self._meeting.secret is not None:
            with self._timer.activity.exchange():
                prove(group, communicator.rank, communicator.size, self._meeting.secret)
        if group is not None:
            communicator._process_groups.append(group)
            self._children.append(communicator)
        return communicator

    def _new_group(self, groups: Sequence[Sequence[int]], backend: str | None) -> dist.ProcessGroup | None:
        """torch's group of this rank. In torch, every rank of the run takes part in making every group."""
        own = None
        for members in groups if self._environment.num_ranks > 1 else ():
            group = dist.new_group(members, timeout=timedelta(seconds=self._timeout_s), backend=backend)
            own = group if self._environment.rank in members else own
        return own

    def uncounted(self) -> Communicator:
        """The same collectives, for exchanges that belong to the platform: their traffic is not in the ledger."""
        other = copy(self)
        other.ledger, other._process_groups, other._children = Ledger(), [], []
        return other

    def release(self) -> None:
        """Leave the groups that `along` and `clone_for_thread` made. All ranks call this, and wait for each other."""
        for child in self._children:
            if child._background is not None:
                child._background.finish()
        if self._children:
            self.barrier()  # a peer may still be joining a group that was never used
        while self._children:
            self._children.pop().release()
        while self._process_groups:
            dist.destroy_process_group(self._process_groups.pop())

    def all_reduce(self, tensor: Tensor, tag: Tag) -> None:
        """Sum `tensor` over all ranks, in place, on every rank. It may be a view of any strides, such as a column."""
        if self.size == 1:
            return
        with self._exchange(tag, all_reduce_bytes(tensor.nbytes, self.rank, self.size)):
            payload = self._stage(tensor)
            self._carrier.all_reduce(payload)
            if payload is not tensor:
                tensor.detach().copy_(payload)

    def broadcast(self, tensor: Tensor, source: int, tag: Tag) -> None:
        """Copy the `tensor` of rank `source` to every rank, in place; the source sends N-1 copies."""
        if self.size == 1:
            return
        if self._is_halved(tensor, tag):
            half = tensor.bfloat16()
            self.broadcast(half, source, tag)
            if self.rank != source:
                tensor.copy_(half)
            return
        sent = (self.size - 1) * tensor.nbytes if self.rank == source else 0
        with self._exchange(tag, sent, 0 if sent else tensor.nbytes):
            payload = self._stage(tensor)
            self._carrier.broadcast(payload, source)
            if payload is not tensor and self.rank != source:
                tensor.detach().copy_(payload)

    def all_to_all(
        self, rows: Tensor, sent: Sequence[int], received: Sequence[int], tag: Tag, out: Tensor | None = None
    ) -> Tensor:
        """One round in which every rank sends rows to every other rank.

        Args:
            rows: `[sum(sent), ...]`, ordered by receiving rank.
            sent: number of rows for each rank; 0 for this rank.
            received: number of rows from each rank, equal to the other ranks' `sent`.
            tag: under which traffic is counted.
            out: memory for received rows, None for new memory.

        Returns:
            `[sum(received), ...]`, ordered by sending rank.
        """
        if self._is_halved(rows, tag):
            half = self.all_to_all(rows.bfloat16(), sent, received, tag)
            return half.to(rows.dtype) if out is None else out.copy_(half)
        out = rows.new_empty((sum(received), *rows.shape[1:])) if out is None else out
        if self.size == 1:
            return out
        assert sent[self.rank] == 0 and received[self.rank] == 0, "rows for oneself need no exchange"
        with self._exchange(tag, rows.nbytes, out.nbytes):
            payload = self._stage(rows)
            direct = payload.device == out.device and out.is_contiguous()
            target = out if direct else payload.new_empty(out.shape, dtype=out.dtype)
            self._carrier.all_to_all(target, payload, received, sent)
        return out if target is out else out.copy_(target)

    def trade(self, pieces: Sequence[Tensor], sizes: Sequence[int], tag: Tag) -> list[Tensor]:
        """One round in which piece r of every rank goes to rank r; the own piece stays as it is.

        Args:
            pieces: one tensor for each rank, of any shape.
            sizes: number of elements from each rank.
            tag: under which traffic is counted.

        Returns:
            The pieces for this rank, ordered by sending rank; all except the own one are flat.
        """
        sent = [0 if rank == self.rank else piece.numel() for rank, piece in enumerate(pieces)]
        received = [0 if rank == self.rank else size for rank, size in enumerate(sizes)]
        payload = torch.cat([piece.reshape(-1) for rank, piece in enumerate(pieces) if rank != self.rank])
        arrived = torch.split_with_sizes(self.all_to_all(payload, sent, received, tag), received)
        return [pieces[rank] if rank == self.rank else piece for rank, piece in enumerate(arrived)]

    def counted_all_to_all(self, rows: Tensor, sent: Sequence[int], tag: Tag) -> tuple[Tensor, list[int]]:
        """`all_to_all` for ranks that do not know how many rows they receive: counts (tag `sizes`), then rows.

        Args:
            rows: `[sum(sent), ...]`, ordered by receiving rank.
            sent: number of rows for each rank; 0 for this rank.
            tag: under which traffic is counted.

        Returns:
            Received rows, ordered by sending rank, and the number of rows from each rank.
        """
        received = self.swap(torch.tensor(sent).unsqueeze(1)).flatten().tolist()
        return self.all_to_all(rows, sent, received, tag), received

    def swap(self, numbers: Tensor) -> Tensor:
        """Exchange the sizes of a later exchange (tag `sizes`): row r of `[size, k]`, on the host, goes to rank r.

        Returns:
            `[size, k]`: the rows that all ranks sent to this rank.
        """
        if self.size == 1:
            return numbers
        numbers = numbers.contiguous()
        out = torch.empty_like(numbers)
        with self._timer.phase("wait"), self._timer.activity.exchange():
            ones = [1] * self.size
            self._carrier.all_to_all(out, numbers, ones, ones)
        self.ledger.add({"sizes": Traffic(numbers.nbytes * (self.size - 1) // self.size, 1)})
        self._met = True
        return out

    def all_gather(self, part: Tensor, lengths: Sequence[int], tag: Tag) -> list[Tensor]:
        """Every rank's `part` on every rank, in one round.

        Args:
            part: `[lengths[rank], ...]`.
            lengths: number of rows of each rank.
            tag: under which traffic is counted.
        """
        if self.size == 1:
            return [part]
        sent_bytes, row = (self.size - 1) * part.nbytes, part[:1].nbytes
        with self._exchange(tag, sent_bytes, row * (sum(lengths) - lengths[self.rank])):
            payload = self._stage(part)
            parts = [payload.new_empty((length, *part.shape[1:])) for length in lengths]
            self._carrier.spread(payload, parts, self.rank)
            parts = [received.to(part.device) for received in parts]
        parts[self.rank] = part
        return parts

    def gather_objects(self, value: object) -> list[Any]:
        """Every rank's `value` on every rank. For small values outside the epoch; not counted.

        Args:
            value: of the types that cross between ranks (`gnnexp.comm.wire`). No pickle is sent or read.

        Raises:
            WireError: a peer sent something else.
        """
        if self.size == 1:
            return [value]
        own = torch.frombuffer(bytearray(pack(value)), dtype=torch.uint8)
        with self._timer.activity.exchange():
            sizes = [int(size) for size in self._gathered(torch.tensor([own.numel()]))]
            longest = max(sizes)
            if min(sizes) < 0 or self.size * longest > available_memory():
                raise WireError(f"peers announce messages of {sizes} bytes")
            gathered = self._gathered(torch.nn.functional.pad(own, (0, longest - own.numel())))
        return [unpack(packed.numpy().data[:size]) for packed, size in zip(gathered, sizes, strict=True)]

    def _gathered(self, own: Tensor) -> list[Tensor]:
        """The host tensors of all ranks, which have the same shape."""
        return self._carrier.gather(own, self.size)

    def start_max(self, numbers: Tensor) -> dist.Work:
        """Start to replace host `numbers` by their maximum over ranks. For the platform itself; not counted."""
        assert numbers.is_contiguous(), "gloo would take other elements, and a copy would be gone before the work ends"
        return self._carrier.start_max(numbers)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            with self._timer.activity.exchange():
                self._carrier.barrier()

    def close(self) -> None:
        """Leave the process group once every rank is done."""
        if self.size > 1:
            dist.barrier()
            self.release()
            dist.destroy_process_group()

    @contextmanager
    def _exchange(self, tag: Tag, sent_bytes: int, received_bytes: int = 0) -> Iterator[None]:
        with self._timer.activity.exchange():
            if self._timer.meets and not self._met:
                with self._timer.phase("wait"):
                    self._carrier.barrier()
            self._met = False
            on_gpu = self.device.type == "cuda" and self._throttle is None
            mark = self._timer.begin_exchange() if on_gpu else None
            start = time.perf_counter()
            yield
            if mark is not None:
                self._timer.end_exchange(tag, mark)
                self.ledger.add({tag: Traffic(sent_bytes, 1)})
                return
            if self.device.type == "cuda":  # the stream of the calling thread, not what others do meanwhile
                torch.cuda.current_stream(self.device).synchronize()
            if self._throttle is not None:  # full duplex: the fuller direction decides
                time.sleep(max(0.0, start + max(sent_bytes, received_bytes) / self._throttle - time.perf_counter()))
            end = time.perf_counter()
        self._timer.note_collective(start, end)
        self.ledger.add({tag: Traffic(sent_bytes, 1, end - start)})

    def _is_halved(self, rows: Tensor, tag: Tag) -> bool:
        return tag in self._halved and rows.dtype == torch.float32

    def _stage(self, tensor: Tensor) -> Tensor:
        """`tensor` for torch's collectives: in one piece, and in pinned host memory if gloo carries GPU tensors.

        Gloo says nothing about a tensor with gaps, such as a column `[:, 0]`: it takes the elements that lie next to
        each other in memory, which are others. The result is `tensor` itself if it fits already.
        """
        tensor = tensor.contiguous()
        return tensor.cpu().pin_memory() if self._staged and tensor.is_cuda else tensor
