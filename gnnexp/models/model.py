"""A model: a stack of layers with dropout between them, built when the data is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.experiment.schema import MOST_COUNTED
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.models.layer import Activation, BlockLayer, Degrees, Layer, activate
from gnnexp.models.local import destination_rows, preactivated_rows
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backends import KERNELS, make_backend
from gnnexp.ops.masks import DropKeys, mask_key

# The deepest published GNN has 1,001 layers (Li et al., ICML 2021).
MOST_LAYERS = 10_000

Exchange = Callable[[int, Rows], Rows]
Preactivate = Callable[[int, Block, Rows, BatchKey | None], Tensor]


class EndOfLayer(TypedDict):
    """What `finish` of a layer ends with."""

    activation: Activation
    residual: bool
    norm: bool
    bias: bool


class Model(nn.Module, ABC):
    """Base of all models. A subclass says what its layers are (`make_layer`); `setup` builds them.

    Args:
        hidden: columns of the hidden layers.
        layers: number of layers.
        dropout: probability on the inputs of all layers but the first.
        input_dropout: probability on the features.
        residual: add the undropped input to each hidden layer's output.
        norm: LayerNorm before each hidden activation.
        kernel: `auto` (numba on CPU, torch on CUDA), `numba`, `torch` or `dgl`.
        bias: whether layers have one.

    Attributes:
        degrees_of: what degrees are counted in, `graph` or `block`, where layers normalise by them.
    """

    degrees_of: Literal["graph", "block"] = "graph"

    def __init__(
        self, hidden: int, layers: int, dropout: float, input_dropout: float, residual: bool, norm: bool, kernel: str,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.hidden, self.num_layers = hidden, layers
        self.dropout, self.input_dropout = dropout, input_dropout
        self.residual, self.norm, self.bias, self.kernel = residual, norm, bias, kernel
        self.hidden_activation: Activation = "relu"
        self.num_relations = 0  # of the data, which is not known yet
        self.layers = nn.ModuleList()
        self.decoder: nn.Module | None = None  # the task's, trained with the model
        self.backend: Backend | None = None
        self.drop_keys: DropKeys | None = None  # on a GPU

    def problems(self) -> list[Problem]:
        """What is wrong with the arguments."""
        wrong = []
        for name, value, most, usual in (("hidden", self.hidden, MOST_COUNTED, 64),
                                         ("layers", self.num_layers, MOST_LAYERS, 2)):
            if not 1 <= value <= most:
                wrong.append(Problem(f"model.{name}", value, f"must be at least 1, and at most {most:,}",
                                     f"model.{name}={usual}"))
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                wrong.append(Problem(f"model.{name}", getattr(self, name), "must be in [0, 1)", f"model.{name}=0.5"))
        if self.kernel not in KERNELS:
            allowed = f"must be one of: {', '.join(KERNELS)}"
            wrong.append(Problem("model.kernel", self.kernel, allowed, "set model.kernel=auto"))
        return wrong

    def check(self, experiment: Experiment) -> list[Problem]:
        """What is wrong with the arguments, alone and beside the device."""
        wrong = self.problems()
        if not wrong and experiment.hardware.device == "cuda" and self.kernel not in ("auto", "torch"):
            wrong.append(Problem("model.kernel", self.kernel, "must be torch or auto with hardware.device=cuda",
                                 "set model.kernel=auto"))
        return wrong

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """What does not fit the prepared data."""
        if not facts.sparse or not isinstance(self.make_layer(0, 8, 8), BlockLayer):
            return []
        return [Problem("model", experiment.model.target, "its layers take dense rows, and the features are sparse",
                        "set dataset.sparse=false, or choose model=sage, gcn, gat or gin")]

    @property
    def needs(self) -> BlockNeeds:
        """What blocks must carry for this model."""
        return BlockNeeds()

    def num_matrices(self, num_relations: int) -> int:
        """Matrices `[Din, out]` that a layer's parameters amount to at most."""
        return 2

    @property
    def values_per_edge(self) -> int:
        """What a hidden layer's edges have of their own in training: weights with what they are made from."""
        return 0

    @abstractmethod
    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer | BlockLayer:
        """The `index`-th layer, from `in_dim` to `out_dim` columns."""

    def end_of_layer(self, index: int) -> EndOfLayer:
        """Activation, skip connection and normalisation: on hidden layers only."""
        last = index == self.num_layers - 1
        return EndOfLayer(
            activation="none" if last else self.hidden_activation,
            residual=self.residual and not last,
            norm=self.norm and not last,
            bias=self.bias,
        )

    def setup(
        self, in_dim: int, num_classes: int, facts: Degrees, *, seed: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Build the layers and draw their parameters: a pure function of the seed, the same on every rank.

        Args:
            in_dim: columns of the features.
            num_classes: columns of the output.
            facts: of the full graph.
            seed: of the run.
            dtype: of parameters and activations.
            device: where the model lives.
        """
        if wrong := self.problems():
            raise ConfigError(wrong)
        self.backend = make_backend(self.kernel, device)
        self.drop_keys = DropKeys(self.num_layers, device) if device.type == "cuda" else None
        facts = facts.to(device)
        self.in_dim, self.num_classes, self.num_relations = in_dim, num_classes, facts.num_relations
        dims = self.widths
        for index in range(self.num_layers):
            layer = self.make_layer(index, dims[index], dims[index + 1]).to(torch.float64)
            key = stream(seed, Purpose.INIT, index)
            layer.reset(torch.Generator().manual_seed(key >> 1))
            layer.attach(self.backend, facts)
            self.layers.append(layer.to(device=device, dtype=dtype))

    def forward(
        self, batch: Batch, features: Rows, exchange: Exchange | None = None, first: int = 0,
        preactivate: Preactivate | None = None,
    ) -> Tensor:
        """`[T, classes]` logits of the batch's targets.

        Args:
            batch: its blocks.
            features: `[n, D]` rows of its input vertices; of the first n of them, where an exchange brings the others.
            exchange: what comes between the row-local start of layer l and the rest of it: `(l, rows [n, d])` to
                `[S, d]`, the rows of all sources of the block.
            first: layer to start with; `features` are then the inputs of that layer.
            preactivate: see `run_layer`.
        """
        h: Rows = features
        for index, block in enumerate(batch.blocks[first:], first):
            h = self.run_layer(index, block, h, batch.key if self.training else None, exchange, preactivate)
        assert isinstance(h, Tensor)
        return h

    def run_layer(
        self, index: int, block: Block, h: Rows, key: BatchKey | None, exchange: Exchange | None = None,
        preactivate: Preactivate | None = None,
    ) -> Tensor:
        """One layer, its input's dropout included: `[D, out]` from `[S, in]`.

        Where nothing else reads them, the activation of the layer before is fused with this layer's dropout: `h` is
        then a preactivation (see `_fuses`).

        Args:
            index: which layer.
            block: its hop, complete for every destination.
            h: rows of the sources; of the first of them, where an exchange brings the others.
            key: key of the dropout masks, None for inference.
            exchange: see `forward`.
            preactivate: what runs the layer up to its activation instead of `preactivated`.
        """
        layer = self.layers[index]
        dropped = self.drop_input(index, block.src_ids[: h.shape[0]], h, key)
        if exchange is not None:
            dropped = exchange(index, dropped)
        out = (preactivate or self.preactivated)(index, block, dropped, key)
        residual = layer.residual_part(destination_rows(block, h)) if isinstance(layer, Layer) else None
        return self.finish_layer(index, out, residual)

    def preactivated(self, index: int, block: Block, dropped: Rows, key: BatchKey | None) -> Tensor:
        """`[D, out]`: layer `index` up to its activation, from rows of all sources after dropout and exchange."""
        layer = self.layers[index]
        if isinstance(layer, BlockLayer):
            assert isinstance(dropped, Tensor), "block layers take dense rows"
            own = destination_rows(block, dropped)
            assert isinstance(own, Tensor)
            return layer(block, dropped, own)  # type: ignore[no-any-return]
        assert isinstance(layer, Layer)
        return preactivated_rows(layer, block, dropped, self.drop(
            Purpose.ATTENTION_DROPOUT, index, layer.weight_dropout, key))

    @property
    def widths(self) -> list[int]:
        """`[L + 1]` columns of the features and of every layer's output."""
        return [self.in_dim, *[self.hidden] * (self.num_layers - 1), self.num_classes]

    def row_local(self, index: int) -> bool:
        """Whether layer `index` reads no other row than a vertex's own."""
        return False

    def finish_layer(self, index: int, preactivated: Tensor, residual: Tensor | None) -> Tensor:
        """The end of layer `index`, for paradigms that run its phases themselves: what `run_layer` returns."""
        layer = self.layers[index]
        if self._fuses(index):
            return preactivated
        if isinstance(layer, BlockLayer):
            return activate(preactivated, layer.activation)
        assert isinstance(layer, Layer)
        return layer.activated(preactivated, residual)

    def drop(self, purpose: Purpose, index: int, p: float, key: BatchKey | None) -> Drop | None:
        """The dropout of layer `index` in the batch `key`; None where nothing is dropped."""
        if key is None or p == 0:
            return None
        word = None if self.drop_keys is None else self.drop_keys.word(purpose, index, key)
        return Drop(p, mask_key(purpose, index, key), word)

    def drop_features(self, ids: Tensor, h: Rows, dims: slice, key: BatchKey | None) -> Rows:
        """`drop_input` of the first layer, of features that hold the dimensions `dims` only."""
        assert self.backend is not None
        drop, width = self.drop(Purpose.DROPOUT, 0, self.input_dropout, key), self.in_dim
        if drop is None:
            return h
        if isinstance(h, Tensor):
            return self.backend.dropout(h, ids, drop, width, dims.start) if h.shape[1] else h
        shifted = SparseRows(h.indptr, h.columns + dims.start, h.values, width)
        return SparseRows(h.indptr, h.columns, self.backend.sparse_dropout(shifted, ids, drop).values, h.num_columns)

    def drop_input(self, index: int, ids: Tensor, h: Rows, key: BatchKey | None) -> Rows:
        """The row-local start of layer `index`: dropout of rows `h` of vertices `ids`, after a fused activation."""
        assert self.backend is not None
        p = self.dropout if index else self.input_dropout
        drop = self.drop(Purpose.DROPOUT, index, p, key)
        if isinstance(h, SparseRows):
            return h if drop is None else self.backend.sparse_dropout(h, ids, drop)
        if index and self._fuses(index - 1):
            return self.backend.relu_dropout(h, ids, drop or Drop(0.0, 0), h.shape[1])
        return h if drop is None else self.backend.dropout(h, ids, drop, h.shape[1])

    def _fuses(self, index: int) -> bool:
        """Whether layer `index` leaves its ReLU to the dropout of the next layer: one pass instead of two."""
        if index + 1 >= self.num_layers:
            return False
        layer, after = self.layers[index], self.layers[index + 1]
        assert isinstance(layer, Layer | BlockLayer) and isinstance(after, Layer | BlockLayer)
        return layer.activation == "relu" and not layer.residual and not after.residual
