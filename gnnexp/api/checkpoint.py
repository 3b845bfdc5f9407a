"""Finds the checkpoint of a model, and copies parameters and trained rows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from gnnexp.api.record import best_model_of
from gnnexp.components.eager import eager
from gnnexp.errors import DataError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.feature_stores.embedding import EmbeddingStore
from gnnexp.models.model import Model
from gnnexp.record.records import read_epochs
from gnnexp.training.checkpoint import Checkpoint, latest_checkpoint, open_checkpoint
from gnnexp.training.parameters import join, put

Which = Literal["best", "last"]
WHICH = get_args(Which)
_NOT_KEPT = "its checkpoint was not written or is damaged (train.checkpoint_every=0, a full disk)"
_LAST = 'gnnexp.load(run, which="last"), or gnnexp predict RUN --last'
# Modules of the paradigms that train convolutions of DGL.
_OF_DGL = ("gnnexp.paradigms.dgl_reference", "gnnexp.paradigms.dgl_full_graph")

_MISFITS = (LookupError, RuntimeError, ValueError, TypeError, AttributeError)


def find_checkpoint(run_dir: Path, which: Which) -> Checkpoint:
    """The checkpoint of the best validation epoch, or the latest one. It matches its checksums.

    Raises:
        DataError: there is none, or it is damaged.
    """
    if which == "last":
        latest, problems = latest_checkpoint(run_dir)
        if latest is None:
            none = Problem(
                str(run_dir),
                "last",
                f"has no checkpoint: {_NOT_KEPT}",
                "make the run again with train.checkpoint_every=1, which keeps the best model",
            )
            raise DataError(problems or none)
        return latest
    best = best_model_of(run_dir)
    if best is None:
        raise DataError(Problem(str(run_dir), "best", "no epoch was evaluated, so none is the best", _LAST))
    if best.checkpoint is None:
        raise DataError(
            Problem(
                str(run_dir),
                f"epoch {best.epoch}",
                f"is the best epoch, and its model was not kept: {_NOT_KEPT}",
                f"{_LAST}; or run it again with train.checkpoint_every=1, which keeps the best model",
            )
        )
    checkpoint = open_checkpoint(best.checkpoint)
    checkpoint.verify()
    return checkpoint


def recorded_metrics(run_dir: Path, epoch: int) -> dict[str, float]:
    """The metrics on the held-out splits that the run recorded for an epoch; empty if it was not evaluated."""
    lines = read_epochs(run_dir)
    metrics: Mapping[str, float] = lines[epoch]["metrics"] if 0 <= epoch < len(lines) else {}
    return {name: value for name, value in metrics.items() if name.partition("/")[2] in ("val", "test")}


def restore_values(checkpoint: Checkpoint, model: Model, experiment: Experiment) -> None:
    """Copy the parameters and buffers of a checkpoint to `model`, which is set up and whole. Slices are joined.

    Raises:
        DataError: the checkpoint does not fit the model.
    """
    try:
        if type(experiment.paradigm).__module__ in _OF_DGL:
            from gnnexp.paradigms.dgl_layers import DGLStack

            stack = DGLStack(model)
            _copy(checkpoint, stack)
            stack.store_to(model)
        else:
            _copy(checkpoint, model)
    except _MISFITS as error:
        raise _misfit(checkpoint, "parameters", error) from None


def restore_rows(found: Checkpoint, store: EmbeddingStore) -> None:
    """Copy the trained rows of all ranks to `store`, which holds all rows.

    Raises:
        DataError: the checkpoint does not fit the store.
    """
    try:
        store.load_pieces(found.of_rank(rank)["rows"] for rank in range(found.num_ranks))
    except _MISFITS as error:
        raise _misfit(found, "rows", error) from None


def _copy(found: Checkpoint, module: nn.Module) -> None:
    targets = dict(module.named_buffers()) | dict(module.named_parameters())
    entries = _values(found.shared()["parameters"])
    if sliced := [name for name in targets if name not in entries]:
        pieces = [_values(found.of_rank(rank)["parameters"]) for rank in range(found.num_ranks)]
        entries |= join(pieces, {name: _whole(name, targets[name].shape, pieces) for name in sliced})
    put(module, eager(torch.optim.SGD)(module.parameters(), lr=0.0), entries)


def _values(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Only the values, without the state of the optimizer."""
    return {name: {"value": entry["value"]} for name, entry in entries.items()}


def _whole(name: str, shape: torch.Size, pieces: Sequence[Mapping[str, Any]]) -> tuple[int, slice]:
    """The dimension along which ranks divided a parameter, and all of it (`gnnexp.comm.slices.Slices`)."""
    shapes = [piece[name]["value"].shape for piece in pieces]
    dim = next((dim for dim, size in enumerate(shape) if any(one[dim] != size for one in shapes)), 0)
    return dim, slice(0, shape[dim])


def _misfit(found: Checkpoint, what: str, error: Exception) -> DataError:
    why = f"does not fit this model: {' '.join(str(error).split())[:300]}"
    return DataError(Problem(str(found.folder), what, why, "use the code and the packages that the run used"))
