"""NeutronStar's hybrid: for every foreign vertex and layer, compute it once more or fetch it, whichever costs less.

By costs per float, edge and byte that the hardware profile says. A vertex that is computed here in layer l is needed
here in layer l-1 as well, with its in-neighbours, each of which is computed or fetched in turn. What several vertices
share is charged to each of them, so caching looks a little dearer than it is. Features of layer 1 are always held:
they cost an exchange in every epoch and no computation. (Wang et al., SIGMOD 2022; the artifact has this commented
out, so it follows the paper's description.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.graph.shard import Shard
from gnnexp.kernels.graph.edges import sum_over_in_edges

# Passes in training: an aggregation runs forward and backward, a product forward and for both of its gradients.
_GATHERS, _PRODUCTS, _EXCHANGES = 2, 3, 2


@dataclass(frozen=True)
class Costs:
    """Seconds of one gathered float, one float operation of a matrix product, one float sent."""

    gather: float
    flop: float
    send: float

    @staticmethod
    def of(hardware: HardwareConfig, itemsize: int) -> Costs:
        """By the profile, which has been checked to say all of it."""
        assert hardware.links is not None and hardware.links.network and hardware.gather and hardware.flops
        return Costs(itemsize / hardware.gather, 1 / hardware.flops, itemsize / hardware.links.network)


def check_profile(hardware: HardwareConfig) -> list[Problem]:
    """The profile must say what computing and sending cost."""
    said = {"hardware.flops": hardware.flops, "hardware.gather": hardware.gather,
            "hardware.links.network": None if hardware.links is None else hardware.links.network}
    return [Problem(key, value, "paradigm.dependency=hybrid weighs computing against sending by it: must be a positive "
                    "number", f"choose a profile that says it (hardware=local_measured), or set {key}=<per second>")
            for key, value in said.items() if value is None or value <= 0]


def cheapest(shard: Shard, own: Tensor, dims: Sequence[int], costs: Costs) -> Callable[[int, Tensor], Tensor]:
    """Which foreign inputs of a layer are computed here: `(layer from 0, ids [m])` to `[m]` bool.

    Args:
        shard: the graph.
        own: `[n]` vertices of this rank.
        dims: widths of the inputs of all layers, then of the output.
        costs: of the machine.
    """
    indptr, indices = shard.graph.indptr.numpy(), shard.graph.indices.numpy()
    degree = np.diff(indptr)
    computed = np.zeros(degree.size)  # cost of having the input of layer l of a vertex here
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
    # A vertex that is computed in one layer is in all layers below.
    return lambda layer, ids: decisions[layer][ids.long()]
