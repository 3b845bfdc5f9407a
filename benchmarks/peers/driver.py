"""What the drivers of all peers share. It needs numpy and torch alone: each driver runs in its peer's environment.

A driver gets a request as its argument and prepares one measurement. Then every line on its stdin repeats the
measurement, and one line of JSON on its stdout answers it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Answer = dict[str, float]
Turn = Callable[[int], Answer]
REPEATS = 5  # forward and backward passes of a layer per line


@dataclass(frozen=True)
class Request:
    """A measurement.

    Attributes:
        measure: `sampling`, `layer` or `epoch`.
        config: resolved configuration of gnnexp; `model`, `optimizer`, `sampler.fanouts` and `train.batch_size` count.
        graph: folder of the graph: `indptr`, `indices` (in-edges), `features`, `labels`.
        inputs: folder that `inputs.py` wrote.
        num_workers: processes of the peer's loader.
        layout: of PyG's edges: `edge_index` or `sparse`.
        block: block of the layer: `input` or `hidden`.
        device: `cpu` or `cuda`.
    """

    measure: str
    config: dict[str, Any]
    graph: str
    inputs: str
    num_workers: int = 0
    layout: str = "edge_index"
    block: str = "hidden"
    device: str = "cpu"

    @property
    def fanouts(self) -> list[int]:
        """Target hop first."""
        return list(self.config["sampler"]["fanouts"])

    @property
    def batch_size(self) -> int:
        """Number of targets of a batch."""
        return int(self.config["train"]["batch_size"])

    @property
    def model(self) -> str:
        """`sage` or `gat`."""
        return str(self.config["model"]["_target_"]).rpartition(".")[2].removesuffix("Options").lower()

    def array(self, name: str) -> Tensor:
        """An array of the graph, in memory."""
        return torch.from_numpy(np.load(Path(self.graph) / f"{name}.npy"))

    def given(self, name: str) -> Tensor:
        """An array that `inputs.py` wrote."""
        return torch.from_numpy(np.load(Path(self.inputs) / f"{name}.npy"))


def serve(measures: Mapping[str, Callable[[Request], Turn]]) -> None:
    """Prepare the measurement of the request, and repeat it for every line."""
    request = Request(**json.loads(sys.argv[1]))
    torch.manual_seed(0)
    turn = measures[request.measure](request)
    for number, _ in enumerate(sys.stdin):
        print(json.dumps(turn(number)), flush=True)


def shared(values: Tensor) -> Tensor:
    """A copy that processes of a loader see. It is filled again before every epoch, in the epoch's order."""
    copy = values.clone()
    copy.share_memory_()  # type: ignore[no-untyped-call]
    return copy


def sampled(orders: Tensor, current: Tensor, edges_of: Callable[[], Iterable[int]]) -> Turn:
    """Sample all batches of one order. `current` are the targets of the loader; `edges_of` yields edges by batch."""

    def turn(number: int) -> Answer:
        current.copy_(orders[number % len(orders)])
        began = time.perf_counter()
        edges = sum(edges_of())
        return {"seconds": time.perf_counter() - began, "edges": edges}

    return turn


def layer_turn(request: Request, layer: nn.Module, forward: Callable[[Tensor], Tensor], num_src: int) -> Turn:
    """Forward and backward of one layer on the block of the request. Features take no gradient, hidden rows do."""
    hidden = request.block == "hidden"
    width = request.config["model"]["hidden"] if hidden else request.array("features").shape[1]
    rows = torch.randn(num_src, width, device=request.device, requires_grad=hidden)
    gradient = torch.randn_like(forward(rows).detach())

    def turn(_: int) -> Answer:
        began = _now(request.device)
        for _ in range(REPEATS):
            rows.grad = None
            layer.zero_grad()
            forward(rows).backward(gradient)  # type: ignore[no-untyped-call]
        return {"seconds": (_now(request.device) - began) / REPEATS}

    return turn


Step = tuple[Tensor, Tensor, int]  # logits and labels of the targets, number of edges of all layers


def epoch_turn(request: Request, net: nn.Module, current: Tensor, steps: Callable[[], Iterable[Step]]) -> Turn:
    """Train for one epoch on the targets in the order that gnnexp has for it. `steps` runs the forward passes."""
    orders = request.given("orders")
    optimizer = torch.optim.Adam(net.parameters(), lr=request.config["optimizer"]["lr"])
    net.train()

    def turn(number: int) -> Answer:
        current.copy_(orders[number % len(orders)])
        began, total, edges = _now(request.device), torch.zeros((), device=request.device), 0
        for logits, labels, num_edges in steps():
            optimizer.zero_grad()
            loss = cross_entropy(logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(labels)
            edges += num_edges
        return {"seconds": _now(request.device) - began, "loss": total.item() / len(current), "edges": edges}

    return turn


def hops(edge_index: Tensor, num_targets: int, num_layers: int) -> list[tuple[int, int, int]]:
    """Numbers of edges, destinations and sources of every layer, input side first.

    Args:
        edge_index: `[2, E]` sources and destinations of the edges that a batch sampled, ascending by destination.
            Vertices are numbered as they were found: targets first, then hop by hop.
        num_targets: number of targets.
        num_layers: number of hops.
    """
    found, num_dst = [], num_targets
    for _ in range(num_layers):
        edges = int(torch.searchsorted(edge_index[1].contiguous(), num_dst))
        num_src = max(num_dst, int(edge_index[0, :edges].max()) + 1) if edges else num_dst
        found.append((edges, num_dst, num_src))
        num_dst = num_src
    return found[::-1]


def _now(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()
