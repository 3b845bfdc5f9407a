"""Predictions and embeddings of vertices as a table: a row for each vertex, with the user's own ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gnnexp.api.predicting.graphs import Target
from gnnexp.api.trained import TrainedModel
from gnnexp.tasks.base import Scores
from gnnexp.tasks.vertices import VertexTask

if TYPE_CHECKING:
    import pyarrow as pa

# A piece of the table has at most this number of rows, and at most these bytes of outputs in float64.
_MOST_ROWS, _MOST_BYTES = 1 << 18, 1 << 26


def predicted(
    model: TrainedModel, target: Target, *, probabilities: bool, scores: list[Scores] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows `id`, `type` (with several types of vertices), and the columns of the task (`Task.predictions`).

    Rows are in the order of the vertices. Outputs are computed and written piece by piece (`TrainedModel.outputs`).

    Args:
        model: a trained model of a task of vertices.
        target: the graph.
        probabilities: whether to write the columns of each class.
        scores: receives what metrics need, for vertices with labels.
    """
    import pyarrow as pa

    task = model.task
    assert isinstance(task, VertexTask)
    judge = _judge(model, target) if scores is not None else None
    classes = list(model.names.classes) or [str(number) for number in range(model.graph.num_classes)]
    first = 0
    for ids, outputs in _rows(target, model.outputs(target.graph), model.graph.num_classes):
        numbers = torch.arange(first, first + outputs.shape[0])
        first += outputs.shape[0]
        if judge is not None and scores is not None:
            scores.append(judge.score(outputs, numbers))
        columns = task.predictions(task.values(outputs), classes, every=probabilities)
        yield pa.RecordBatch.from_pydict({**ids, **columns})


def embedded(model: TrainedModel, target: Target, *, lists: bool) -> Iterator[pa.RecordBatch]:
    """Rows `id`, `type` (with several types of vertices), and the embedding of each vertex.

    Args:
        model: a trained model of any task.
        target: the graph.
        lists: one column `embedding` with lists of one length; else the columns `e_0`, `e_1`, …
    """
    import pyarrow as pa

    width = model.graph.num_classes if model.task.options.pairs else model.model.options.hidden
    for ids, outputs in _rows(target, model.embeddings(target.graph), width):
        values = outputs.cpu().contiguous().numpy()
        columns: dict[str, Any] = {f"e_{number}": column for number, column in enumerate(values.T)}
        if lists:
            columns = {"embedding": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])}
        yield pa.RecordBatch.from_pydict({**ids, **columns})


def metrics_of_all(model: TrainedModel, target: Target, scores: Sequence[Scores]) -> dict[str, float]:
    """Metrics over all labelled vertices of the graph; empty without labels."""
    judge = _judge(model, target)
    if judge is None or not any(len(next(iter(part.values()))) for part in scores):
        return {}
    return judge.metrics(scores)


def _judge(model: TrainedModel, target: Target) -> VertexTask | None:
    """The task with the labels of the graph; None without labels."""
    assert isinstance(model.task, VertexTask)
    return None if target.labelled is None else model.task.judging(target.labelled)


def _rows(target: Target, chunks: Iterator[Tensor], width: int) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """Ids of consecutive vertices, and their outputs `[n, width]`."""
    most = max(1, min(_MOST_ROWS, _MOST_BYTES // (8 * max(1, width))))
    stream = _Stream(chunks)
    for ids in target.ids.pieces(most):
        yield ids, stream.take(len(ids["id"]))


class _Stream:
    """Rows of consecutive chunks, in pieces of any size."""

    def __init__(self, chunks: Iterator[Tensor]) -> None:
        self._chunks, self._left = chunks, torch.empty(0, 1)

    def take(self, count: int) -> Tensor:
        """The next `count` rows."""
        parts = []
        while count:
            if not self._left.shape[0]:
                self._left = next(self._chunks)
            parts.append(self._left[:count])
            self._left = self._left[count:]
            count -= parts[-1].shape[0]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
