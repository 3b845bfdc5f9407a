"""NeutronStar's hybrid: each foreign vertex of each layer is computed here or fetched, whichever is cheaper.

Costs per float, operation and byte come from the hardware profile. If a vertex is computed here in layer l, layer l-1
needs the vertex and its in-neighbours here. These are again computed or fetched. Work that several vertices share is
charged to each of them, so caching looks slightly too expensive. Features of layer 1 are always held: fetching them
would cost an exchange in every epoch, and holding them needs no computation.

Rows may be fetched projected (`sent_rows.py`). Then fewer columns are sent, and a row that is computed here must be
projected here, too.

With `hardware.device_memory`, what is computed here must fit. Vertices that save the most seconds per byte come first:

    (seconds to fetch - seconds to compute) / bytes of its row, its in-edges and what these need in the layer below

Bytes that several vertices share are charged to each of them for this order. But as many vertices are held as fit
together.

(Wang et al., SIGMOD 2022. In the artifact this code is a comment, so this module follows the paper.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import Problem
from gnnexp.graph.shard import Shard
from gnnexp.kernels.graph.edges import sum_over_in_edges
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.paradigms.vertices.held_memory import HeldMemory, layer_sizes
from gnnexp.paradigms.vertices.sent_rows import projected_columns
from gnnexp.placement.halo import Cached

# Passes in training: aggregations and exchanges run forward and backward, products forward and for both gradients.
_GATHERS, _PRODUCTS, _EXCHANGES = 2, 3, 2


@dataclass(frozen=True)
class Costs:
    """Seconds for one gathered float, for one operation of a matrix product, and for one sent float."""

    gather: float
    flop: float
    send: float

    @staticmethod
    def of(hardware: HardwareConfig, itemsize: int) -> Costs:
        """Costs from the hardware profile. `profile_problems` has checked that it is complete."""
        assert hardware.links is not None and hardware.links.network and hardware.gather and hardware.flops
        return Costs(itemsize / hardware.gather, 1 / hardware.flops, itemsize / hardware.links.network)


def profile_problems(hardware: HardwareConfig) -> list[Problem]:
    """Problems of the hardware profile: costs of computing or sending are missing."""
    said = {
        "hardware.flops": hardware.flops,
        "hardware.gather": hardware.gather,
        "hardware.links.network": None if hardware.links is None else hardware.links.network,
    }
    return [
        Problem(
            key,
            value,
            "paradigm.dependency=hybrid weighs computing against sending by it: must be a positive number",
            f"choose a profile that says it (hardware=local_measured), or set {key}=<per second>",
        )
        for key, value in said.items()
        if value is None or value <= 0
    ]


@dataclass(frozen=True)
class Fetched:
    """A fetched row of a layer.

    Attributes:
        columns: its columns.
        products: multiplications that a row needs here if it is not fetched, because fetched rows come projected.
    """

    columns: int
    products: int = 0

    @staticmethod
    def of(layer: Layer | BlockLayer, *, projects: bool) -> Fetched:
        """A row that a layer reads, raw or projected."""
        if not projects:
            return Fetched(layer.in_dim)
        assert isinstance(layer, Layer)
        return Fetched(projected_columns(layer), layer.in_dim * layer.width)


@dataclass(frozen=True, eq=False)
class Choices:
    """What is cheaper for each foreign input of a layer.

    Attributes:
        computed: `[V]` bool, whether it is computed here.
        gain: `[V]` seconds that this saves for each byte that it takes; not positive where it is fetched.
    """

    computed: Tensor
    gain: np.ndarray


def cheapest(
    shard: Shard,
    own: Tensor,
    dims: Sequence[int],
    costs: Costs,
    fetched: Sequence[Fetched],
    memory: HeldMemory,
) -> Cached:
    """A function that says which foreign inputs of a layer are computed here: `(layer from 0, ids [m])` to `[m]` bool.

    Args:
        shard: shard with the whole graph.
        own: `[n]` vertices of this rank.
        dims: `[L + 1]` columns of the inputs of all layers, then of the output.
        costs: costs of the machine.
        fetched: `[L]` rows of all layers.
        memory: bytes that layers take, and their limit.
    """
    choices, num_layers = _choices(shard, own, dims, costs, fetched, memory), len(dims) - 1

    def above(least: float) -> Cached:
        chosen = [choice.computed & torch.from_numpy(choice.gain >= least) for choice in choices]
        # A vertex that is computed in one layer is computed in all layers below.
        return lambda layer, ids: (
            torch.ones(ids.shape, dtype=torch.bool) if not layer else chosen[layer - 1][ids.long()]
        )

    def fits(held: Cached) -> bool:
        return memory.budget is None or memory.fits(layer_sizes(shard, own, num_layers, held, memory.loops))

    if fits(everything := above(-math.inf)):
        return everything
    gains = np.unique(np.concatenate([choice.gain[choice.computed.numpy()] for choice in choices]))[::-1]
    held, low, high = above(math.inf), 0, len(gains)  # the first `low` gains fit, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(tried := above(gains[middle - 1])):
            held, low = tried, middle
        else:
            high = middle
    return held


def _choices(
    shard: Shard, own: Tensor, dims: Sequence[int], costs: Costs, fetched: Sequence[Fetched], memory: HeldMemory
) -> list[Choices]:
    """The choices for the inputs of all layers but the first."""
    indptr, indices, ours = shard.graph.indptr.numpy(), shard.graph.indices.numpy(), own.numpy()
    degree = np.diff(indptr)
    computed = np.zeros(degree.size)  # cost to compute the input of layer l of each vertex here
    best = np.zeros(degree.size)
    held_bytes = best_bytes = np.full(degree.size, float(memory.per_input))
    best_bytes[ours] = 0
    choices = []
    for (before, after), row in zip(pairwise(dims[:-1]), fetched[1:], strict=True):
        edges = degree * (_GATHERS * before * costs.gather)
        product = _PRODUCTS * 2 * before * after * costs.flop
        computed = computed + edges + product + sum_over_in_edges(indptr, indices, best)
        here = computed + _PRODUCTS * 2 * row.products * costs.flop
        sent = _EXCHANGES * row.columns * costs.send
        held_bytes = held_bytes + degree * memory.per_edge + sum_over_in_edges(indptr, indices, best_bytes)
        choices.append(Choices(torch.from_numpy(here < sent), (sent - here) / held_bytes))
        best = np.minimum(here, sent)
        best_bytes = np.where(here < sent, held_bytes, 0) + memory.per_row
        held_bytes = held_bytes + memory.per_row
        best[ours] = best_bytes[ours] = 0
    return choices
