"""A user's task: classes of vertices by a decoder that is learned together with the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import Examples
from gnnexp.tasks.node_classification import NodeClassification, NodeClassificationOptions

DECODED = {"_target_": f"{__name__}.Decoded"}


class Decoded(NodeClassificationOptions):
    """Options of `DecodedTask`."""

    def num_outputs(self, graph: Graph, hidden: int) -> int:
        return 6

    def make(self) -> DecodedTask:
        return DecodedTask(self)


class DecodedTask(NodeClassification):
    """Classes of vertices by a learned map of the model's 6 outputs."""

    def decoder(self, num_outputs: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        self.head = nn.Sequential(nn.Linear(num_outputs, 5), nn.Tanh(), nn.Linear(5, 4)).to(torch.float64)
        for parameter in self.head.parameters():
            nn.init.uniform_(parameter, -1, 1, generator=generator)
        return self.head.to(device=device, dtype=dtype)

    def decode(self, outputs: Tensor, examples: Examples) -> Tensor:
        return self.head(outputs)
