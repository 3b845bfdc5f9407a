"""A layer with input columns sliced over ranks: each rank runs its slice for every rank's block (P3's pull).

Sums over slices are linear in the input, so every contract layer is exact. Bias, normalisation and activation run
once, after the sum. Attention needs whole keys to weigh edges, so ranks sum keys first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.owners import spread_from_owners, sum_at_owners
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.local import destination_rows, edge_weights, mixed_from_projected
from gnnexp.models.model import Model
from gnnexp.ops.backend import Drop

Pull = Literal["auto", "projections", "aggregates"]


@dataclass(frozen=True, eq=False)
class Slice:
    """One rank's block, with the columns of its input rows that are on this rank.

    Attributes:
        block: block of the first layer.
        raw: `[S, d]` columns of the sources' rows.
        rows: `raw` after dropout.
        drop: attention dropout of the block's batch, or None.
    """

    block: Block
    raw: Rows
    rows: Rows
    drop: Drop | None


class SlicedLayer:
    """The first layer of a model, sliced over ranks.

    Args:
        model: a model that is set up, whose first layer is a contract layer.
        dims: input columns of this rank. The layer keeps only these columns of the input weights.
        comm: all ranks; each has one slice.
        pull: what a block's owner sums: `projections` of all sources, `aggregates` of the destinations (the second
            formula of the layer contract), or `auto`: the choice with fewer elements.
    """

    def __init__(self, model: Model, dims: slice, comm: Communicator, pull: Pull) -> None:
        first = model.layers[0]
        assert isinstance(first, Layer), "checked before"
        self.model, self.layer, self.dims, self.comm, self.pull = model, first, dims, comm, pull
        self.sliced = first.keep_columns(dims)

    def run(self, blocks: Sequence[Block], features: Sequence[Rows], key: BatchKey) -> Tensor:
        """`[D, out]` of this rank's block, as `Model.run_layer` would return it.

        Args:
            blocks: block of every rank.
            features: `[S, d]` columns on this rank, for every block.
            key: key of this rank's batch. With `sampler.key=micro`, keys of other batches follow from their ranks.
        """
        slices = [
            self._slice(block, rows, key if key.micro < 0 else replace(key, micro=rank))
            for rank, (block, rows) in enumerate(zip(blocks, features, strict=True))
        ]
        pulled = self._pull_projections if self.pulls_projections(slices) else self._pull_aggregates
        mixed, residual = pulled(slices)
        ids = blocks[self.comm.rank].dst_ids
        return self.model.finish_layer(0, ids, self.layer.preactivation(mixed), residual)

    def pulls_projections(self, slices: Sequence[Slice]) -> bool:
        """Whether ranks sum projections of sources instead of aggregates. The same on all ranks."""
        layer = self.layer
        if isinstance(slices[0].raw, SparseRows) or self.pull != "auto":
            return self.pull != "aggregates" or isinstance(slices[0].raw, SparseRows)
        sources = sum(own.block.num_src for own in slices)
        destinations = sum(own.block.num_dst for own in slices)
        keys = layer.num_weights if layer.traits.kind == "projected" else 0
        own = layer.width if layer.traits.self_is_neighbour else 0
        shipped = (sources + destinations) * keys if self.ships_keys else 0
        aggregates = destinations * (layer.sum_width + own) + 2 * (sources + destinations) * keys
        return sources * layer.width + shipped < aggregates

    @property
    def ships_keys(self) -> bool:
        """Whether the owner cannot compute keys from summed projections."""
        return self.layer.traits.kind == "projected" and self.layer.traits.keys_of_projected is None

    # --- the two ways ----------------------------------------------------------------------------------------------
    def _pull_projections(self, slices: Sequence[Slice]) -> tuple[Tensor, Tensor | None]:
        """The owner sums the projections of its sources, then runs the rest of the layer."""
        parts = [
            [
                self.layer.project(of.rows, self.dims),
                *(self._keys(of) if self.ships_keys else []),
                *self._self_part(of, among_sources=True),
            ]
            for of in slices
        ]
        (projected, *summed), residual = self._sum(parts, slices)
        keys = (summed.pop(0), summed.pop(0)) if self.ships_keys else None
        mine = slices[self.comm.rank]
        own = summed[0] if summed else None
        return mixed_from_projected(self.layer, mine.block, projected, own, mine.drop, keys), residual

    def _pull_aggregates(self, slices: Sequence[Slice]) -> tuple[Tensor, Tensor | None]:
        """Every rank aggregates its columns of every block, then projects. The owner sums the results."""
        layer = self.layer
        weights, mass = self._weights(slices)
        parts = []
        for of, weight in zip(slices, weights, strict=True):
            assert isinstance(of.rows, Tensor), "sparse rows are pulled as projections"
            aggregated = layer.sum_projected(of.block, of.rows, weight, self.dims)
            parts.append([aggregated, *self._self_part(of, among_sources=False)])
        (aggregated, *own), residual = self._sum(parts, slices)
        block = slices[self.comm.rank].block
        return layer.mix(Destinations.of(block, mass), aggregated, own[0] if own else None), residual

    # --- their pieces ----------------------------------------------------------------------------------------------
    def _slice(self, block: Block, features: Rows, key: BatchKey) -> Slice:
        model = self.model
        return Slice(
            block,
            features,
            model.drop_features(block.src_ids, features, self.dims, key),
            model.drop(Purpose.ATTENTION_DROPOUT, 0, self.layer.traits.weight_dropout, key),
        )

    def _keys(self, of: Slice) -> list[Tensor]:
        """Partial keys of sources and destinations."""
        both = self.layer.keys(of.rows, self.dims)
        assert both is not None, "a layer with projected weights has keys"
        return [both[0].contiguous(), cast(Tensor, destination_rows(of.block, both[1]))]

    def _self_part(self, of: Slice, *, among_sources: bool) -> list[Tensor]:
        """The partial self part of the destinations; empty if it is among the sources' projections."""
        own = destination_rows(of.block, of.rows)
        if self.layer.traits.self_is_neighbour:
            return [] if among_sources else [self.layer.project(own, self.dims)]
        part = self.layer.project_self(own, self.dims)
        return [] if part is None else [part]

    def _sum(self, parts: list[list[Tensor]], slices: Sequence[Slice]) -> tuple[list[Tensor], Tensor | None]:
        """Sum this rank's parts and its residual over ranks, in one round."""
        residuals = [self.layer.residual_part(destination_rows(of.block, of.raw), self.dims) for of in slices]
        together = [
            of_rank if residual is None else [*of_rank, residual]
            for of_rank, residual in zip(parts, residuals, strict=True)
        ]
        summed = sum_at_owners(together, self.comm, "activations")
        return (summed, None) if residuals[0] is None else (summed[:-1], summed[-1])

    def _weights(self, slices: Sequence[Slice]) -> tuple[list[Tensor | None], Tensor | None]:
        """Edge weights of every block, and the mass of this rank's destinations. Ranks sum keys first."""
        layer, comm = self.layer, self.comm
        keys: list[tuple[Tensor, Tensor] | None] = [None] * len(slices)
        if layer.traits.kind == "projected":
            partial = [self._keys(of) for of in slices]
            whole = sum_at_owners(partial, comm, "activations")
            shapes = [[tuple(part.shape) for part in of_rank] for of_rank in partial]
            keys = [
                (of_sources, of_destinations)
                for of_sources, of_destinations in spread_from_owners(whole, shapes, comm, "activations")
            ]
        with_masses = [edge_weights(layer, of.block, key) for of, key in zip(slices, keys, strict=True)]
        weights = [
            layer.drop_weights(of.block, weight, of.drop) for of, (weight, _) in zip(slices, with_masses, strict=True)
        ]
        return weights, with_masses[comm.rank][1]
