"""NeutronStar's hybrid: each foreign vertex of each layer is computed here or fetched, whichever is cheaper.

Costs per float, operation and byte come from the hardware profile. If a vertex is computed here in layer l, layer l-1
needs the vertex and its in-neighbours here. These are again computed or fetched. Work that several vertices share is
charged to each of them, so caching looks slightly too expensive. Features of layer 1 are always held: fetching them
would cost an exchange in every epoch, and holding them needs no computation.

(Wang et al., SIGMOD 2022. In the artifact this code is a comment, so this module follows the paper.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import Problem
from gnnexp.graph.shard import Shard
from gnnexp.kernels.graph.edges import sum_over_in_edges

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


def cheapest(shard: Shard, own: Tensor, dims: Sequence[int], costs: Costs) -> Callable[[int, Tensor], Tensor]:
    """A function that says which foreign inputs of a layer are computed here: `(layer from 0, ids [m])` to `[m]` bool.

    Args:
        shard: shard with the whole graph.
        own: `[n]` vertices of this rank.
        dims: `[L + 1]` columns of the inputs of all layers, then of the output.
        costs: costs of the machine.
    """
    indptr, indices = shard.graph.indptr.numpy(), shard.graph.indices.numpy()
    degree = np.diff(indptr)
    computed = np.zeros(degree.size)  # cost to compute the input of layer l of each vertex here
    decisions = [torch.ones(degree.size, dtype=torch.bool)]
    best = np.zeros(degree.size)
    for before, after in pairwise(dims[:-1]):
        edges = degree * (_GATHERS * before * costs.gather)
        product = _PRODUCTS * 2 * before * after * costs.flop
        computed = computed + edges + product + sum_over_in_edges(indptr, indices, best)
        fetched = _EXCHANGES * after * costs.send
        decisions.append(torch.from_numpy(computed < fetched))
        best = np.minimum(computed, fetched)
        best[own.numpy()] = 0
    # A vertex that is computed in one layer is computed in all layers below.
    return lambda layer, ids: decisions[layer][ids.long()]
