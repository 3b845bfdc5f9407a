"""Loads a run's model for MLflow: `mlflow.pyfunc.load_model("runs:/<id>/model")` (`gnnexp.trackers.model`)."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnexp.api.trained import TrainedModel, load
from gnnexp.errors import DataError, Problem

if TYPE_CHECKING:
    from pandas import DataFrame


class VertexPredictor:
    """Gives the outputs of chosen vertices of the graph that the model was trained on.

    Args:
        model: the model of a run.

    Attributes:
        model: the same model.
    """

    def __init__(self, model: TrainedModel) -> None:
        self.model = model

    def predict(self, model_input: DataFrame, params: object = None) -> np.ndarray[Any, Any]:
        """`[n, C]` logits of the vertices whose ids are in the column `vertex` `[n]`.

        Raises:
            DataError: an id is no vertex of the graph.
        """
        ids = torch.as_tensor(np.asarray(model_input["vertex"], dtype=np.int64))
        outputs = self._outputs
        wrong = ids[(ids < 0) | (ids >= outputs.shape[0])]
        if wrong.numel():
            raise DataError(
                Problem(
                    "vertex",
                    int(wrong[0]),
                    f"must be a vertex of {self.model.graph.name}, 0 to {outputs.shape[0] - 1}",
                    "give ids of vertices",
                )
            )
        return outputs[ids].numpy()

    @cached_property
    def _outputs(self) -> torch.Tensor:
        outputs: torch.Tensor = self.model()
        return outputs.cpu()


def _load_pyfunc(path: str) -> VertexPredictor:
    """The predictor of the files that `gnnexp.trackers.model` has stored; MLflow calls this function by its name."""
    return VertexPredictor(load(Path(path)))
