"""Dense updates on the host, so that features and their intermediate results never enter the device (NeutronTP, 4.2.1).

Parameters stay on the optimizer's device. They are copied to the host in every epoch, and autograd takes gradients
back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gnnexp.components.options import with_options
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.models.decoupled import Keys, dense_update
from gnnexp.models.layer import Degrees
from gnnexp.models.model import Model
from gnnexp.ops.backends import kernel_elsewhere
from gnnexp.paradigms.job import Job


def dense_updates(model: Model, ids: Tensor, features: Rows, key: BatchKey | None) -> tuple[Tensor, Keys | None]:
    """All dense updates of a decoupled model: `([n, classes], keys)` of vertices `ids` `[n]` from their features."""
    h: Rows = features
    keys = None
    for index in range(model.num_layers):
        h, keys = dense_update(model, index, ids, h, key)
    assert isinstance(h, Tensor)
    return h, keys


class HostUpdates:
    """`dense_updates` on the host, for a model on another device.

    Args:
        job: job of the rank; its model is set up.
    """

    def __init__(self, job: Job) -> None:
        self._model = job.model
        kernel = kernel_elsewhere(job.model.options.kernel, "cpu")
        here, model = with_options(job.model.options, kernel=kernel).make(), job.model
        here.setup(
            model.in_dim,
            model.num_classes,
            Degrees.of(job.graph),
            seed=0,
            dtype=job.dtype,
            device=torch.device("cpu"),
            matmul=job.matmul,
            computes=job.computes,
        )
        self._updates = _Updates(here)

    def run(self, ids: Tensor, features: Rows, key: BatchKey | None) -> tuple[Tensor, Keys | None]:
        """Run `dense_updates` on the host. Gradients arrive at the parameters."""
        parameters = {f"model.{name}": value.cpu() for name, value in self._model.layers.named_parameters("layers")}
        return functional_call(self._updates, parameters, (ids, features, key))  # type: ignore[no-any-return]


class _Updates(nn.Module):
    """`dense_updates` as a module, because `functional_call` replaces parameters of a module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, features: Rows, key: BatchKey | None) -> tuple[Tensor, Keys | None]:
        return dense_updates(self.model, ids, features, key)
