"""Coupled layers by columns: split, aggregate, gather (naive tensor parallelism, NeutronTP section 3.1).

Layers with constant weights aggregate before they project, as in the paper, unless another order is chosen. Layer 1
reads features that are stored by columns, so it only gathers. All other layers project first. Attention's weights come
from shared keys, R-GCN's from parameters. Sums are taken of projected columns, including those of heads and bases. If
edges are projected, ranks take whole blocks of the projection: columns of its input, and the columns of its output that
depend on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.comm.tensor_split import ColumnLayout, filled, gather, gather_all_rows, split, unfilled
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.decoupled import contract_layer
from gnnexp.models.layer import Destinations
from gnnexp.models.local import normalised_weights
from gnnexp.paradigms.columns.idle_ranks import any_parameter, own_columns
from gnnexp.paradigms.columns.orders import ColumnShares
from gnnexp.paradigms.columns.trainer import ColumnTrainer
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.full_graph import Whole, layer_by_layer
from gnnexp.paradigms.loops.in_chunks import in_chunks, static_weights
from gnnexp.placement.chunks import Chunk, ChunkCost


class CoupledTrainer(ColumnTrainer):
    """Trains the layers of the model, exactly.

    Args:
        job, chunking, cost: see `ColumnTrainer`.
        projects_first: for each layer, whether it aggregates projected rows.
        shares: how ranks share columns.
    """

    def __init__(
        self, job: Job, chunking: Chunking, cost: ChunkCost, projects_first: Sequence[bool], shares: ColumnShares
    ) -> None:
        super().__init__(job, chunking, cost)
        self._features: Rows | None = None
        self._weights: dict[Hashable, Tensor | None] = {}
        self._own_here = self.own.to(job.device)
        self._projects_first = projects_first
        cuts = [
            shares.cuts(contract_layer(job.model, index), projects=projects)
            for index, projects in enumerate(projects_first)
        ]
        # Columns of each rank in the rows that a layer aggregates, and in the sums.
        self._split, self._gathered = (
            [ColumnLayout(self.counts_per_rank, shares.bounds(of_layer), job.comm.rank) for of_layer in of_layers]
            for of_layers in zip(*cuts, strict=True)
        )
        degree = torch.cat([chunk.block.degree for chunk in self.chunks])
        totals = [total for chunk in self.chunks if (total := chunk.block.total_weight) is not None]
        self._dst = Destinations(
            self._own_here,
            degree.to(job.device)[self._own_here],
            weight=torch.cat(totals).to(job.device)[self._own_here] if totals else None,
        )
        self.held = self.rank_graph(self.own, [layout.bounds for layout in self._split])
        if chunking.resident is not None:
            visited = self.chunks if any(layout.width for layout in self._split) else ()
            self.keep_chunks(visited, [self._static(index) for index in range(job.model.num_layers)])

    def _static(self, index: int) -> Tensor | None:
        """Weights of all edges that are the same in every epoch. Layers with equal weights share them."""
        layer = contract_layer(self.job.model, index)
        if layer.weights_key not in self._weights:
            self._weights[layer.weights_key] = static_weights(layer, self.chunks, self.job.device)
        return self._weights[layer.weights_key]

    def facts(self) -> Mapping[str, Any]:
        """The number of chunks, and what each layer does first."""
        return {
            **super().facts(),
            "orders": ["project" if projects else "aggregate" for projects in self._projects_first],
        }

    def load(self) -> Rows:
        """Load whole rows of the own vertices, and columns of all vertices' features if layer 1 aggregates features."""
        store = self.job.store
        if not (self._projects_first[0] or store.options.trained_columns):
            features = self.job.graph.features
            assert isinstance(features, Tensor)
            columns = features[:, self._split[0].columns].to(self.job.dtype).contiguous()
            self._features = columns.to(self.job.device)
            store.count("host", features.shape[0], self._features.numel() * self._features.element_size())
        return store.read(self.own.to(self.job.graph.indices.dtype))

    def forward(self, ready: Whole) -> Tensor:
        """`[n, classes]` of the own vertices."""
        return layer_by_layer(ready, self.job.model.num_layers, self._layer)

    def _layer(self, index: int, h: Rows, key: BatchKey) -> Tensor:
        model, layer = self.job.model, contract_layer(self.job.model, index)
        dropped = model.drop_input(index, self._own_here, h, key)
        if self._projects_first[index]:
            projected = layer.project(dropped)
            aggregated = self._projected(index, projected, dropped, key)
            own = projected if layer.traits.self_is_neighbour else layer.project_self(dropped)
        else:
            aggregated = layer.project_aggregated(self._aggregated(index, dropped, key))
            own = layer.project(dropped) if layer.traits.self_is_neighbour else layer.project_self(dropped)
        mixed = layer.mix(self._dst, aggregated, own)
        return model.finish_layer(index, self._own_here, layer.preactivation(mixed), layer.residual_part(h))

    def _aggregated(self, index: int, dropped: Rows, key: BatchKey) -> Tensor:
        """`[n, Din]` sums of the inputs. Features that take no gradient are already here by columns."""
        job, layout = self.job, self._split[index]
        if index == 0 and self._features is not None:
            everyone = torch.arange(job.graph.num_nodes, device=job.device)
            x = job.model.drop_features(everyone, self._features, layout.columns, key)
            assert isinstance(x, Tensor)
            if missing := layout.width - x.shape[1]:  # otherwise `pad` would copy all features
                x = F.pad(x, (0, missing))
        else:
            assert isinstance(dropped, Tensor)
            x = split(filled(dropped, layout), layout, job.comm, "activations")
        sums = gather(self._summed(index, x), layout, job.comm, "activations" if index else "features")
        return unfilled(sums, dropped.shape[1])

    def _summed(self, index: int, x: Tensor) -> Tensor:
        """`[V, d]` sums with constant weights, of any columns `x` `[V, d]`."""
        layer = contract_layer(self.job.model, index)

        def work(chunk: Chunk, rows: Tensor, weight: Tensor | None) -> Tensor:
            return layer.aggregate(chunk.block, rows, weight)

        def back(chunk: Chunk, gradient: Tensor, weight: Tensor | None) -> Tensor:
            return layer.aggregate_back(chunk.block, gradient, weight)

        def summed() -> Tensor:
            weight, transposed = self._static(index), back if layer.num_weights == 1 else None
            return in_chunks(
                work, x, weight, self.chunks, self.job.tier, width=x.shape[1], transposed=transposed, layer=index
            )

        return own_columns(summed, self._split[index], x)

    def _projected(self, index: int, projected: Tensor, dropped: Rows, key: BatchKey) -> Tensor:
        """`[n, C]` sums of projected rows, divided by the mass if weights come from shared keys."""
        job, layer, layout = self.job, contract_layer(self.job.model, index), self._split[index]
        x, summed_shares = split(filled(projected, layout), layout, job.comm, "activations"), self._gathered[index]
        if layer.traits.kind == "static" and not isinstance(dropped, SparseRows):
            return unfilled(gather(self._summed(index, x), summed_shares, job.comm, "activations"), layer.width)
        heads = layer.num_weights
        drop = job.model.drop(Purpose.ATTENTION_DROPOUT, index, layer.traits.weight_dropout, key)
        if layer.traits.kind == "projected":
            keys = layer.keys_of_projected(projected) or layer.keys(dropped)
            assert keys is not None, "a layer with projected weights has keys"
            x = torch.cat((x, gather_all_rows(torch.cat(keys, 1), self.counts_per_rank, job.comm, "activations")), 1)

        def work(chunk: Chunk, rows: Tensor, weight: Tensor | None) -> Tensor:
            keyed = None
            if layer.traits.kind == "projected":
                rows, source, destination = torch.split_with_sizes(rows, [layout.width, heads, heads], 1)
                keyed = source.contiguous(), destination[: chunk.block.num_dst].contiguous()
            if layer.traits.kind != "static":
                weight = normalised_weights(layer, chunk.block, keyed, drop)
            return layer.aggregate_projected(chunk.block, rows, weight, layout.columns)

        def summed() -> Tensor:
            width, weight = summed_shares.width, self._static(index)
            return in_chunks(work, x, weight, self.chunks, job.tier, width=width, layer=index)

        learned = None if layer.traits.kind == "static" else any_parameter()
        sums = gather(own_columns(summed, summed_shares, x, learned), summed_shares, job.comm, "activations")
        return unfilled(sums, layer.sum_width)
