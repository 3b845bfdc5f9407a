"""Cached rows of a clique's ranks, read by peer access: one kernel reads each row from the GPU that has it (Quiver)."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.packages import missing_package
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem, Refusal
from gnnexp.feature_stores.rows import RowForm, take_rows
from gnnexp.graph.sparse import Rows
from gnnexp.measure.ledger import Tally
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.tiers.peers import PeerRows, peer_rows

# Rows of each rank that all ranks compare with the features before training. Some machines report peer access that
# reads wrong bytes.
_COMPARED = 64
_NO_GPU = "Triton needs an NVIDIA GPU and a build of torch for it"


def peer_problems(setting: Setting, members: int) -> list[Problem]:
    """Why `feature_store.cache.access=peer` cannot be, as far as this is known before the run starts."""
    key, fix, hardware = "feature_store.cache.access", "set feature_store.cache.access=auto", setting.hardware
    reason = ""
    if hardware.device == "cpu":
        reason = "the run is on the CPU"
    elif not setting.reads_rows_on_gpu:
        reason = "this paradigm reads rows on the host"
    elif hardware.nodes > 1 and hardware.workers % members:
        reason = f"a clique of {members} ranks is on several machines, which have {hardware.workers} ranks each"
        fix = "set feature_store.cache.clique to a divisor of hardware.workers, or feature_store.cache.access=auto"
    elif not has_triton():
        return [missing_package(key, "peer", "triton", "feature_store.cache.access=auto")]
    elif not (is_interpreted() or has_nvidia_gpu_build()):
        reason = _NO_GPU
    return [Problem(key, "peer", reason, fix)] if reason else []


class PeerAccess:
    """Reads rows of all ranks of a clique, and counts them on the GPU.

    Args:
        peers: addresses of the rows of all ranks.
        rank: number of this rank in the clique.
        order: ids of the cached rows: row p is row `p // ranks` of rank `p % ranks`.
        num_nodes: number of vertices.
        device: GPU of this rank.
    """

    def __init__(self, peers: PeerRows, rank: int, order: Tensor, num_nodes: int, device: torch.device) -> None:
        self._peers, self._rank, self._device = peers, rank, device
        # Positions of rows; as int32 where they fit, since kernels read one for each id.
        dtype = torch.int32 if order.numel() < 2**31 else torch.int64
        table = torch.full((num_nodes,), -1, dtype=dtype)
        table[order] = torch.arange(order.numel(), dtype=dtype)
        self._table = table.to(device)
        self.counted: Tally[str, Tensor] = Tally()

    def read(self, ids: Tensor, out: Tensor, past: Tensor | None = None) -> Tensor:
        """Write rows into `out` `[n, D]` on the GPU, and return it.

        Args:
            ids: `[n]` on the host or on the GPU.
            out: memory for the rows.
            past: `[V, D]` pinned rows for the ids that are not cached; None: their rows in `out` do not change.
        """
        from gnnexp.kernels.cuda.peers import fetch_from_peers

        counts = fetch_from_peers(ids, self._table, self._peers.bases, self._rank, out, past)
        self.counted.add({"rows": counts})
        return out

    def take_counts(self, row_bytes: int) -> dict[str, int]:
        """Rows since the last call by origin, and their bytes. The host waits for the GPU once."""
        counted = self.counted.take()
        own, peer, host = counted["rows"].sum(0).tolist()[:3] if counted else (0, 0, 0)
        return {
            "features_loaded_local": own,
            "features_loaded_peer": peer,
            "features_loaded_host": host,
            "tier/h2d_bytes": host * row_bytes,
            "tier/peer_bytes": peer * row_bytes,
        }

    def finish(self) -> None:
        """Wait for this rank's kernels, and let go of the rows of other ranks."""
        torch.cuda.synchronize(self._device)
        self._peers.mapped.clear()


def peer_access(
    held: Rows, features: Rows, form: RowForm, order: Tensor, comm: Communicator, device: torch.device
) -> PeerAccess | Refusal:
    """Read the cached rows of all ranks of the clique `comm`; or the same reason on all ranks why they cannot be read.

    Args:
        held: rows of this rank.
        features: features of all vertices, which the first rows of each rank are compared with.
        form: form of the held rows.
        order: see `PeerAccess`.
        comm: the clique. All of its ranks call this.
        device: device of this rank.
    """
    num_nodes, rows = features.shape[0], held if isinstance(held, Tensor) else None

    def fault_of(peers: PeerRows) -> str | None:
        assert isinstance(held, Tensor)
        sample = order[: _COMPARED * comm.size]
        access = PeerAccess(peers, comm.rank, order, num_nodes, device)
        read = access.read(sample, held.new_empty((sample.numel(), held.shape[1])))
        wanted = form.held(take_rows(features, sample))
        assert isinstance(wanted, Tensor)
        same = read.view(torch.uint8).equal(wanted.to(device).view(torch.uint8))  # NaN is equal to itself as bytes
        return None if same else f"rank {comm.rank} of the clique reads wrong values from the other GPUs"

    shared = peer_rows(rows, comm, device, _why_not(device, held), fault_of)
    return shared if isinstance(shared, Refusal) else PeerAccess(shared, comm.rank, order, num_nodes, device)


def _why_not(device: torch.device, held: Rows) -> str | None:
    """Why this rank cannot take part; None if it can."""
    if device.type == "cpu":
        return "rows are read on the CPU"
    if not isinstance(held, Tensor):
        return "sparse features are assembled on the host"
    if not has_triton():
        return "the package triton is not installed"
    return None if is_interpreted() or has_nvidia_gpu_build() else _NO_GPU
