"""Any `torch.nn.Module` with PyG's signature `forward(x, edge_index)` as a `BlockLayer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from gnnexp.components.locate import located
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import Block, destinations
from gnnexp.models.layer import Activation, BlockLayer, Degrees
from gnnexp.models.model import ModelOptions
from gnnexp.ops.backend import Backend

Option = bool | int | float | str | None
_PROBE = 8  # columns of the layer that the check tries


class PyGLayer(BlockLayer):
    """A layer that calls `module((x of sources, x of destinations), edge_index)`. Destinations are the first sources.

    A module that takes no pair gets the rows of all sources. The layer uses the output rows of the destinations.
    """

    backend: Backend

    def __init__(
        self, in_dim: int, out_dim: int, activation: Activation, make: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__(in_dim, out_dim, activation)
        self._make = make
        self.module = self._drawn(0)
        self.takes_pairs = _takes_pairs(self.module, in_dim)

    def attach(self, backend: Backend, facts: Degrees) -> None:
        """Take the backend, which keeps `edge_index` of a block."""
        self.backend = backend

    def reset(self, generator: torch.Generator) -> None:
        """Make the module again. Its constructor draws the parameters from the generator's seed."""
        self.module = self._drawn(generator.initial_seed())

    def forward(self, block: Block, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """`[D, out]`."""
        x = h_src if block.dst_positions is None else torch.cat((h_dst, h_src))
        edges = self.backend.constant(block, "edge_index", edge_index)
        out: Tensor = self.module((x, h_dst), edges) if self.takes_pairs else self.module(x, edges)[: block.num_dst]
        return out

    def _drawn(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._make(self.in_dim, self.out_dim)


def edge_index(block: Block) -> Tensor:
    """`[2, E]` int64 sources and destinations. If destinations are not the first sources, they are put before them."""
    sources = block.sources.long()
    if block.dst_positions is not None:
        place = torch.arange(block.num_dst, block.num_dst + block.num_src, device=sources.device)
        place[block.dst_positions] = torch.arange(block.num_dst, device=sources.device)
        sources = place[sources]
    return torch.stack((sources, destinations(block)))


@dataclass(frozen=True)
class PyGOptions(ModelOptions):
    """A stack of modules of one class, made as `module(in, out, **options)`.

    Attributes:
        module: dotted name of the module's class.
        options: other arguments of the class, the same for all layers. The output must have `out` columns (with heads:
            `concat: false`).
        hidden: number of columns of the hidden layers.
        layers: number of layers.
        dropout: probability on the inputs of all layers but the first. The module itself must not drop anything.
        input_dropout: probability on the features.
        activation: activation of the hidden layers.
        kernel: kernels for dropout: `auto`, `numba`, `torch` or `dgl`.
    """

    module: str = "torch_geometric.nn.SAGEConv"
    options: Mapping[str, Option] | None = None
    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    activation: Activation = "relu"
    kernel: str = "auto"

    def problems(self) -> list[Problem]:
        """Invalid arguments, and problems of the module in a trial on three vertices."""
        if wrong := super().problems():
            return wrong
        try:
            layer = self.make_layer(0, _PROBE, _PROBE)
            return _module_problems(layer, self.module)
        except ConfigError as error:
            return list(error.problems)
        except Exception as error:  # a user's module may fail in any way
            return [
                Problem(
                    "model.module",
                    self.module,
                    f"module(in, out, **options)(x, edge_index) raised {error!r}",
                    "correct model.options, or the module",
                )
            ]

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> PyGLayer:
        """The `index`-th module."""
        module = located("model.module", self.module)
        if isinstance(module, Problem):
            raise ConfigError(module)
        kind: Any = module
        return PyGLayer(
            in_dim,
            out_dim,
            self.end_of_layer(index, activation=self.activation)["activation"],
            lambda rows, columns: kind(rows, columns, **(self.options or {})),
        )


def _tried(module: nn.Module, in_dim: int, *more: tuple[int, int], pairs: bool) -> Any:  # noqa: ANN401  any output
    """The module's output for three vertices. Two are destinations; the edges are 1 to 0, 2 to 0 and `more`."""
    x, edges = torch.linspace(-1, 1, 3 * in_dim).view(3, in_dim), [(1, 0), (2, 0), *more]
    module.eval()
    with torch.no_grad():
        out = module((x, x[:2]) if pairs else x, torch.tensor(edges).T)
    module.train()
    return out


def _takes_pairs(module: nn.Module, in_dim: int) -> bool:
    """Whether the module takes a pair of source rows and destination rows. Most other modules raise an error."""
    try:
        out = _tried(module, in_dim, pairs=True)
    except Exception:  # a module that takes no pairs may raise any error
        return False
    return isinstance(out, Tensor) and out.shape[0] == 2


def _module_problems(layer: PyGLayer, name: str) -> list[Problem]:
    """Problems of a module: a wrong shape, rows that depend on more than their in-edges, dropout of its own."""
    problems, module, pairs = [], layer.module, layer.takes_pairs
    out = _tried(module, _PROBE, pairs=pairs)
    if not isinstance(out, Tensor) or out.shape[1:] != (_PROBE,):
        shape = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        problems.append(
            Problem(
                "model.module",
                name,
                f"must give [n, {_PROBE}] for module(in, {_PROBE}), not {shape}",
                "set model.options.concat=false, or heads to 1",
            )
        )
    elif not torch.allclose(out[0], _tried(module, _PROBE, (0, 1), (2, 1), pairs=pairs)[0], atol=1e-4):
        problems.append(
            Problem(
                "model.module",
                name,
                "reads more than rows of in-neighbours (their degrees?), of which a block does not know all",
                "choose model=gcn, sage, gin or gat",
            )
        )
    if any(_drops(part) for part in module.modules()):
        problems.append(
            Problem(
                "model.module",
                name,
                "has dropout of its own, whose masks depend on the rank",
                "set model.options.dropout=0.0; model.dropout drops inputs",
            )
        )
    return problems


def _drops(module: nn.Module) -> bool:
    p = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0)
    return isinstance(p, int | float) and p > 0
