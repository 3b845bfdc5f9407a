"""Models with drawn parameters as `gnnexp.load` gives them, without a run."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnexp.api.inference import InferenceComponents
from gnnexp.api.trained import TrainedModel
from gnnexp.cli.running.prepare import checked_config
from gnnexp.experiment.seen import as_seen
from gnnexp.graph.graph import Graph
from gnnexp.models.layer import Degrees

CPU = torch.device("cpu")


def untrained(graph: Graph, folder: Path, *overrides: str) -> TrainedModel:
    """The model of `overrides` for `graph`, whose parameters (biases, too) are drawn; its names are in `folder`."""
    lines = ["system=dgl", "tracker=none", "hardware.device=cpu", "sampler=full", *overrides]
    experiment = checked_config(lines, None).experiment
    seen, dtype = as_seen(experiment, graph), getattr(torch, experiment.train.dtype)
    task, model = experiment.task.make(), experiment.model.make()
    task.setup(seen, CPU)
    model.setup(seen.num_features, seen.num_classes, Degrees.of(seen), seed=1, dtype=dtype, device=CPU)
    model.decoder = task.decoder(seen.num_classes, seed=1, dtype=dtype, device=CPU)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4)
    return TrainedModel(InferenceComponents(experiment, model, model, task, None, CPU), seen, folder / "run", 0, folder)
