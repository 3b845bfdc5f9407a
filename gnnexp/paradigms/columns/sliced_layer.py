"""A layer with input columns sliced over ranks: each rank runs its slice for every rank's block (P3's pull).

Sums over slices are linear in the input, so every contract layer is exact. Bias, normalisation and activation run
once, after the sum. Attention needs whole keys to weigh edges, so ranks sum keys first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

from torch import Tensor, nn

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.owners import StartedSum, spread_from_owners, sum_at_owners
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


# Makes what the layer mixes of the summed parts.
End = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True, eq=False)
class StartedLayer:
    """A layer whose partial sums are on their way to the owners of the blocks.

    Attributes:
        sliced: the layer, with the weights that it runs with.
        own: this rank's block.
        sums: the parts, and then the residual if there is one.
        has_residual: whether there is one.
        end: see `End`.
    """

    sliced: SlicedLayer
    own: Block
    sums: StartedSum
    has_residual: bool
    end: End

    def finish(self) -> Tensor:
        """`[D, out]` of this rank's block, as `Model.run_layer` would return it; call it once."""
        summed, layer = self.sums.result(), self.sliced.layer
        residual = summed.pop() if self.has_residual else None
        return self.sliced.model.finish_layer(0, self.own.dst_ids, layer.preactivation(self.end(summed)), residual)


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

    def with_present_weights(self) -> SlicedLayer:
        """The layer with copies of its parameters. Gradients reach the parameters, which may change before that."""
        kept = copy(self)
        kept.layer = _with_copies(self.layer)
        return kept

    def run(self, blocks: Sequence[Block], features: Sequence[Rows], key: BatchKey) -> Tensor:
        """`[D, out]` of this rank's block, as `Model.run_layer` would return it. Arguments as for `start`."""
        return self.start(blocks, features, key).finish()

    def start(
        self,
        blocks: Sequence[Block],
        features: Sequence[Rows],
        key: BatchKey,
        background: tuple[Background, Communicator] | None = None,
    ) -> StartedLayer:
        """Compute this rank's part of every block, and start the sum of the parts. All ranks call this.

        Args:
            blocks: block of every rank.
            features: `[S, d]` columns on this rank, for every block.
            key: key of this rank's batch, see `batch_keys`.
            background: the thread that sums while the loop computes, and its communicator; None: sum now.
        """
        slices = [
            self._slice(block, rows, of_rank)
            for block, rows, of_rank in zip(blocks, features, self.batch_keys(key), strict=True)
        ]
        parted = self._projections if self.pulls_projections(slices) else self._aggregates
        parts, end = parted(slices)
        residuals = [self.layer.residual_part(destination_rows(of.block, of.raw), self.dims) for of in slices]
        together = [
            of_rank if residual is None else [*of_rank, residual]
            for of_rank, residual in zip(parts, residuals, strict=True)
        ]
        sums = StartedSum(together, self.comm, "activations", background)
        return StartedLayer(self, blocks[self.comm.rank], sums, residuals[0] is not None, end)

    def batch_keys(self, key: BatchKey) -> list[BatchKey]:
        """Keys of all ranks' batches, from this rank's. With `sampler.key=micro`, they follow from the ranks."""
        return [key if key.micro < 0 else replace(key, micro=rank) for rank in range(self.comm.size)]

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

    # --- the two ways: parts `[ranks][k]` that ranks sum, and the end -----------------------------------------------
    def _projections(self, slices: Sequence[Slice]) -> tuple[list[list[Tensor]], End]:
        """The owner sums the projections of its sources, then runs the rest of the layer."""
        parts = [
            [
                self.layer.project(of.rows, self.dims),
                *(self._keys(of) if self.ships_keys else []),
                *self._self_part(of, among_sources=True),
            ]
            for of in slices
        ]
        mine = slices[self.comm.rank]

        def end(summed: list[Tensor]) -> Tensor:
            projected, *rest = summed
            keys = (rest.pop(0), rest.pop(0)) if self.ships_keys else None
            return mixed_from_projected(self.layer, mine.block, projected, rest[0] if rest else None, mine.drop, keys)

        return parts, end

    def _aggregates(self, slices: Sequence[Slice]) -> tuple[list[list[Tensor]], End]:
        """Every rank aggregates its columns of every block, then projects. The owner sums the results."""
        layer = self.layer
        weights, mass = self._weights(slices)
        parts = []
        for of, weight in zip(slices, weights, strict=True):
            assert isinstance(of.rows, Tensor), "sparse rows are pulled as projections"
            aggregated = layer.sum_projected(of.block, of.rows, weight, self.dims)
            parts.append([aggregated, *self._self_part(of, among_sources=False)])
        block = slices[self.comm.rank].block

        def end(summed: list[Tensor]) -> Tensor:
            return layer.mix(Destinations.of(block, mass), summed[0], summed[1] if len(summed) > 1 else None)

        return parts, end

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


M = TypeVar("M", bound=nn.Module)


def _with_copies(module: M) -> M:
    """A module that shares all but its parameters. These are copies, whose gradients go to the module's own."""
    kept = copy(module)
    kept.__dict__["_parameters"] = {
        name: None if parameter is None else parameter.clone() for name, parameter in module._parameters.items()
    }
    kept.__dict__["_modules"] = {
        name: None if child is None else _with_copies(child) for name, child in module._modules.items()
    }
    return kept
