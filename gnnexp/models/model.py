"""A model: a stack of layers with dropout between them, built when the data is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import ClassVar, cast, final

import torch
from torch import Tensor, nn

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import choice_of, outdated_members, target_of
from gnnexp.components.options import wrong_options
from gnnexp.components.schema import MOST_COUNTED, Activations, Matmul
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import InputRows, Rows, SparseRows, StoredRows
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.pool import Pool
from gnnexp.models.layer import Activation, BlockLayer, Degrees, EndOfLayer, Layer, activate
from gnnexp.models.local import can_sum_stored_rows, destination_rows, preactivated_rows
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backends import KERNELS, kernel_problem, make_backend
from gnnexp.ops.masks import DropKeys, mask_key
from gnnexp.ops.products import gpu_problems, matmul_problems

# The deepest published GNN has 1,001 layers (Li et al., ICML 2021).
MOST_LAYERS = 10_000

Exchange = Callable[[int, Rows], Rows]
Preactivate = Callable[[int, Block, Rows, BatchKey | None], Tensor]


class ModelOptions(ABC):
    """The options of a model. The launcher checks them, and each rank makes its `Model` of them.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file. It says what the
    model's layers are (`make_layer`).

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        hidden: number of columns of the hidden layers.
        layers: number of layers.
        dropout: probability on the inputs of all layers but the first.
        input_dropout: probability on the features.
        kernel: `numba`, `triton`, `torch`, `dgl`, or `auto`: numba on CPU, torch on a GPU.
    """

    version: ClassVar[int] = 1
    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    kernel: str = "auto"

    def problems(self) -> list[Problem]:
        """Invalid arguments."""
        counts = (("hidden", self.hidden, MOST_COUNTED, 64), ("layers", self.layers, MOST_LAYERS, 2))
        shares = (("dropout", self.dropout), ("input_dropout", self.input_dropout))
        wrong = wrong_options(
            "model",
            *(
                (1 <= value <= most, name, value, f"must be at least 1, and at most {most:,}", usual)
                for name, value, most, usual in counts
            ),
            *((0 <= value < 1, name, value, "must be in [0, 1)", 0.5) for name, value in shares),
        )
        if self.kernel not in KERNELS:
            allowed = f"must be one of: {', '.join(KERNELS)}"
            wrong.append(Problem("model.kernel", self.kernel, allowed, "set model.kernel=auto"))
        return wrong

    def check(self, setting: Setting) -> list[Problem]:
        """Invalid arguments, and conflicts with the device, the sampler and the precision of products."""
        wrong, device = self.problems(), setting.hardware.device
        if not wrong:
            wrong_kernel, rounded = kernel_problem(self.kernel, device), matmul_problems(setting.train.matmul, device)
            wrong = [*([] if wrong_kernel is None else [wrong_kernel]), *rounded]
        if wrong:
            return wrong
        layer, matmul = self.example_layer, setting.train.matmul
        if outdated := outdated_members("model._target_", target_of(self), type(layer)):
            return [outdated]
        if setting.train.activations != "float32" and (refusal := setting.rounded_rows):
            wrong.append(
                Problem(
                    "train.activations",
                    setting.train.activations,
                    refusal.reason,
                    "set train.activations=float32, or choose paradigm=data_parallel or split_parallel",
                )
            )
        if isinstance(layer, BlockLayer):
            if matmul != "float32" and not layer.takes_matmul:
                wrong.append(
                    Problem(
                        "train.matmul",
                        matmul,
                        f"layers of {choice_of(self)} multiply with torch's own functions, which do not round",
                        "set train.matmul=float32",
                    )
                )
            if setting.scales and not layer.takes_scale:
                wrong.append(
                    Problem(
                        "sampler",
                        setting.sampler,
                        f"rescales messages, and layers of {choice_of(self)} do not",
                        "choose model=gcn, sage, gin or gat",
                    )
                )
        return wrong

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Conflicts with the prepared data."""
        layer, target, problems = self.example_layer, target_of(self), []
        if facts.sparse and isinstance(layer, BlockLayer):
            problems.append(
                Problem(
                    "model",
                    target,
                    "its layers take dense rows, and the features are sparse",
                    "set dataset.sparse=false, or choose model=sage, gcn, gat or gin",
                )
            )
        if facts.weighted and not layer.takes_weights:
            problems.append(_unweighable(target))
        return problems

    @property
    def needs(self) -> BlockNeeds:
        """What data blocks must carry for this model."""
        return BlockNeeds()

    def num_matrices(self, num_relations: int) -> int:
        """Upper bound of a layer's parameters, as a number of matrices `[Din, out]`."""
        return 2

    @property
    def values_per_edge(self) -> int:
        """Values that training holds for each edge of a hidden layer: weights and their intermediate results."""
        return 0

    @abstractmethod
    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer | BlockLayer:
        """The `index`-th layer, from `in_dim` to `out_dim` columns, for a graph with `num_relations` edge types."""

    @property
    @final
    def sees_rows(self) -> bool:
        """Whether the model's `after_layer` sees the rows of each layer."""
        return self.make().sees_rows

    @cached_property
    @final
    def example_layer(self) -> Layer | BlockLayer:
        """A small layer, which shows what the layers are. It is never set up."""
        return self.make_layer(0, 8, 8)

    @final
    def end_of_layer(
        self,
        index: int,
        *,
        residual: bool = False,
        norm: bool = False,
        bias: bool = True,
        activation: Activation = "relu",
    ) -> EndOfLayer:
        """Activation, skip connection and normalisation of layer `index`. Only hidden layers have them.

        Args:
            index: number of the layer, from 0.
            residual: whether to add the undropped input to each hidden layer's output.
            norm: whether to apply LayerNorm before each hidden activation.
            bias: whether layers have a bias.
            activation: activation of the hidden layers.
        """
        last = index == self.layers - 1
        return EndOfLayer(
            activation="none" if last else activation, residual=residual and not last, norm=norm and not last, bias=bias
        )

    def make(self) -> Model:
        """The model of a rank."""
        return Model(self)


class Model(nn.Module):
    """A stack of layers with dropout between them, on a rank. `setup` builds it when the data is known.

    Attributes:
        options: the options that were chosen.
        num_layers, dropout, input_dropout: see `ModelOptions`.
        backend: kernels; `setup` sets it.
        decoder: the task's decoder, which is trained with the model, or None.
    """

    backend: Backend

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.options = options
        self.num_layers, self.dropout, self.input_dropout = options.layers, options.dropout, options.input_dropout
        self.layers = nn.ModuleList()
        self.decoder: nn.Module | None = None
        self.drop_keys: DropKeys | None = None  # only on a GPU
        self.activations: Activations = "float32"

    def setup(
        self,
        in_dim: int,
        num_classes: int,
        facts: Degrees,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
        matmul: Matmul = "float32",
        activations: Activations = "float32",
        pool: Pool | None = None,
        computes: bool = True,
    ) -> None:
        """Build the layers and draw their parameters: a pure function of the seed, so the same on every rank.

        Args:
            in_dim: number of columns of the features.
            num_classes: number of columns of the output.
            facts: degrees of the full graph.
            seed: seed of the run.
            dtype: type of parameters and activations.
            device: device of the parameters.
            matmul: how dense products round their factors.
            activations: whether rows between layers are rounded to bfloat16 (`train.activations`).
            pool: memory of outputs and gradients on CPU; None: the kernels have their own.
            computes: whether results have values, or shapes only (`make_backend`).
        """
        ConfigError.raise_all([*self.options.problems(), *gpu_problems(matmul, device)])
        self.backend = make_backend(self.options.kernel, device, pool, computes=computes)
        self.activations = activations
        self.drop_keys = DropKeys(self.num_layers, device) if device.type == "cuda" else None
        facts = facts.to(device)
        self.in_dim, self.num_classes, self.num_relations = in_dim, num_classes, facts.num_relations
        dims = self.widths
        for index in range(self.num_layers):
            layer = self.options.make_layer(index, dims[index], dims[index + 1], facts.num_relations).to(torch.float64)
            if facts.in_weight is not None and not layer.takes_weights:
                raise ConfigError(_unweighable(target_of(self.options)))
            key = stream(seed, Purpose.INIT, index)
            layer.reset(torch.Generator().manual_seed(key >> 1))
            layer.attach(self.backend, facts)
            layer.matmul = matmul
            self.layers.append(layer.to(device=device, dtype=dtype))

    def forward(
        self,
        batch: Batch,
        features: InputRows,
        exchange: Exchange | None = None,
        first: int = 0,
        preactivate: Preactivate | None = None,
    ) -> Tensor:
        """`[T, classes]` logits of the batch's targets.

        Args:
            batch: the batch with its blocks.
            features: `[n, D]` rows of the first n input vertices: all of them, unless `exchange` brings the others.
            exchange: called after the row-local start of every layer l. It takes `(l, rows [n, d])` and returns
                `[S, d]`, the rows of all sources of the block.
            first: first layer to run; `features` are the inputs of this layer.
            preactivate: see `run_layer`.
        """
        h: InputRows = features
        for index, block in enumerate(batch.blocks[first:], first):
            h = self.run_layer(index, block, h, batch.key if self.training else None, exchange, preactivate)
        assert isinstance(h, Tensor)
        return h

    def run_layer(
        self,
        index: int,
        block: Block,
        h: InputRows,
        key: BatchKey | None,
        exchange: Exchange | None = None,
        preactivate: Preactivate | None = None,
    ) -> Tensor:
        """Run one layer, including its input dropout: `[D, out]` from `[S, in]`.

        The activation of the layer before may be fused with this layer's dropout. Then `h` is a preactivation
        (see `_fuses`).

        Args:
            index: number of the layer, from 0.
            block: the hop's edges, complete for every destination.
            h: rows of the first n sources: all of them, unless `exchange` brings the others.
            key: key of the dropout masks, None for inference.
            exchange: see `forward`.
            preactivate: function that runs the layer up to its activation instead of `preactivated`.
        """
        layer = self.stack[index]
        if isinstance(h, StoredRows) or (exchange is None and preactivate is None and self._narrows(index, h)):
            assert exchange is None and preactivate is None, "rows that are exchanged or cut are matrices"
            assert not isinstance(h, SparseRows)
            return self._run_on_stored(index, block, h, key)
        dropped = self._passed_on(index, self.drop_input(index, block.src_ids[: h.shape[0]], h, key))
        if exchange is not None:
            dropped = exchange(index, dropped)
        out = (preactivate or self.preactivated)(index, block, dropped, key)
        residual = None
        if isinstance(layer, Layer) and layer.residual:
            residual = layer.residual_part(destination_rows(block, h))
        return self.finish_layer(index, block.dst_ids, out, residual)

    def _run_on_stored(self, index: int, block: Block, h: Tensor | StoredRows, key: BatchKey | None) -> Tensor:
        """`run_layer` of a layer that sums rows where they are stored: features, or rows that are kept in bfloat16."""
        layer = self.stack[index]
        assert isinstance(layer, Layer)
        out = preactivated_rows(layer, block, self._stored_input(index, block.src_ids, h, key), None)
        residual = layer.residual_part(destination_rows(block, h)) if layer.residual else None
        return self.finish_layer(index, block.dst_ids, out, residual)

    def _stored_input(
        self, index: int, ids: Tensor, h: Tensor | StoredRows, key: BatchKey | None
    ) -> Tensor | StoredRows:
        """`drop_input`, and `_passed_on` in two bytes per value. Features are a matrix after dropout."""
        drop = self.drop(Purpose.DROPOUT, index, self.dropout if index else self.input_dropout, key)
        if isinstance(h, StoredRows):
            return h if drop is None else self.backend.rows.dropout_stored(h, ids, drop)
        if self._fuses[index - 1]:
            return StoredRows(self.backend.rows.relu_dropout_rounded(h, ids, drop or Drop(0.0, 0)), None, h.dtype)
        dropped = h if drop is None else self.backend.rows.dropout(h, ids, drop, h.shape[1])
        return StoredRows(dropped.bfloat16(), None, h.dtype)

    def _narrows(self, index: int, h: InputRows) -> bool:
        """Whether the rows between layers that layer `index` reads stay in bfloat16."""
        return bool(index) and self.activations == "bf16" and h.dtype == torch.float32 and self.can_read_stored(index)

    @final
    def can_read_stored(self, index: int = 0) -> bool:
        """Whether layer `index` takes `StoredRows`, and these kernels read them where they are stored."""
        layer, kept = self.stack[index], ("forward", "run_layer", "drop_input", "preactivated")
        ours = all(getattr(type(self), name) is getattr(Model, name) for name in kept)
        return ours and self.backend.reads_stored and can_sum_stored_rows(layer)

    def _passed_on(self, index: int, dropped: Rows) -> Rows:
        """The rows that layer `index` reads, rounded to bfloat16 with `train.activations=bf16`; so are their gradients.

        Features are never rounded. Rounded rows are float32 again, for kernels that take no bfloat16 (`_narrows`).
        """
        if not index or self.activations == "float32" or isinstance(dropped, SparseRows):
            return dropped
        return dropped.bfloat16().to(dropped.dtype)

    def after_layer(self, index: int, ids: Tensor, rows: Tensor) -> Tensor:
        """Rows of layer `index` that the next layer reads. By default these are `rows`.

        A model that stores or inserts historical embeddings overrides this method. Training and evaluation call it
        (`self.training`) after a rank finished a layer of some vertices. Some paradigms refuse such models.

        Args:
            index: number of the layer, from 0.
            ids: `[n]` original ids of the vertices that this rank computed; fetched vertices are not among them.
            rows: `[n, out]` activated rows, before the dropout of the next layer.
        """
        return rows

    def preactivated(self, index: int, block: Block, dropped: Rows, key: BatchKey | None) -> Tensor:
        """`[D, out]`: layer `index` up to its activation, from rows of all sources after dropout and exchange."""
        layer = self.stack[index]
        if isinstance(layer, BlockLayer):
            assert isinstance(dropped, Tensor), "block layers take dense rows"
            own = destination_rows(block, dropped)
            assert isinstance(own, Tensor)
            return layer(block, dropped, own)  # type: ignore[no-any-return]
        assert isinstance(layer, Layer)
        return preactivated_rows(
            layer, block, dropped, self.drop(Purpose.ATTENTION_DROPOUT, index, layer.traits.weight_dropout, key)
        )

    @property
    @final
    def widths(self) -> list[int]:
        """`[L + 1]` numbers of columns of the features and of every layer's output."""
        return [self.in_dim, *[self.options.hidden] * (self.num_layers - 1), self.num_classes]

    def is_row_local(self, index: int) -> bool:
        """Whether layer `index` reads only a vertex's own row."""
        return False

    @final
    def finish_layer(self, index: int, ids: Tensor, preactivated: Tensor, residual: Tensor | None) -> Tensor:
        """Finish layer `index` of vertices `ids`, for paradigms that run its stages. Gives what `run_layer` returns."""
        layer = self.stack[index]
        if self._fuses[index]:
            return preactivated
        if isinstance(layer, BlockLayer):
            return self.after_layer(index, ids, activate(preactivated, layer.activation))
        assert isinstance(layer, Layer)
        return self.after_layer(index, ids, layer.activated(preactivated, residual))

    @property
    @final
    def sees_rows(self) -> bool:
        """Whether `after_layer` is overridden."""
        return type(self).after_layer is not Model.after_layer

    @final
    def drop(self, purpose: Purpose, index: int, p: float, key: BatchKey | None) -> Drop | None:
        """The dropout of layer `index` in the batch `key`; None without dropout."""
        if key is None or p == 0:
            return None
        if self.drop_keys is None:
            return Drop(p, mask_key(purpose, index, key))
        return Drop(p, *self.drop_keys.both(purpose, index, key))

    @final
    def drop_features(self, ids: Tensor, h: Rows, dims: slice, key: BatchKey | None) -> Rows:
        """`drop_input` of the first layer, for features that hold only the dimensions `dims`."""
        drop, width = self.drop(Purpose.DROPOUT, 0, self.input_dropout, key), self.in_dim
        if drop is None:
            return h
        if isinstance(h, Tensor):
            return self.backend.rows.dropout(h, ids, drop, width, dims.start) if h.shape[1] else h
        shifted = SparseRows(h.indptr, h.columns + dims.start, h.values, width)
        return SparseRows(
            h.indptr, h.columns, self.backend.rows.sparse_dropout(shifted, ids, drop).values, h.num_columns
        )

    def drop_input(self, index: int, ids: Tensor, h: Rows, key: BatchKey | None) -> Rows:
        """The row-local start of layer `index`: dropout of rows `h` of vertices `ids`, after a fused activation."""
        p = self.dropout if index else self.input_dropout
        drop = self.drop(Purpose.DROPOUT, index, p, key)
        if isinstance(h, SparseRows):
            return h if drop is None else self.backend.rows.sparse_dropout(h, ids, drop)
        if index and self._fuses[index - 1]:
            return self.backend.rows.relu_dropout(h, ids, drop or Drop(0.0, 0), h.shape[1])
        return h if drop is None else self.backend.rows.dropout(h, ids, drop, h.shape[1])

    @cached_property
    @final
    def stack(self) -> tuple[Layer | BlockLayer, ...]:
        """The layers, without the string that `nn.ModuleList` makes from each index."""
        return tuple(cast("Iterable[Layer | BlockLayer]", self.layers))

    @cached_property
    def _fuses(self) -> tuple[bool, ...]:
        """For each layer, whether the next layer's dropout applies its ReLU: one pass instead of two."""
        pairs = zip(self.stack, self.stack[1:], strict=False)
        return *(self._fuses_with(layer, after) for layer, after in pairs), False

    def _fuses_with(self, layer: Layer | BlockLayer, after: Layer | BlockLayer) -> bool:
        return layer.activation == "relu" and not (layer.residual or after.residual or self.sees_rows)


def _unweighable(model: str) -> Problem:
    return Problem(
        "model",
        model,
        "its layers have no formula for edge weights, and the graph has some",
        "set dataset.weights=false (tables: dataset.weight=null), or choose model=gcn, sage, gin, gat or rgcn",
    )
