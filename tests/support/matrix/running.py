"""Running a case in ranks of a pool, and comparing it with its reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from experiments import experiment_in, planned
from stopping import attempt
from torch import Tensor

from gnnexp.graph.parts import write_parts
from gnnexp.graph.stream import GraphStream
from gnnexp.record.records import read_epochs
from gnnexp.testing.steps import worst_loss_error
from gnnexp.training.assemble import Artifacts
from matrix.axes import Case, named
from matrix.configs import config_of, graph_of, partition_of, reference_of

BOUND = 1e-10
STOP_AT = 2  # the step before which a run is stopped, where it is


@dataclass(frozen=True)
class Trained:
    """What a run left: mean losses of global batches, the metrics of every evaluation, the last parameters.

    Where ranks train parts, steps of several ranks are no global batches: the losses are those of epochs.
    """

    losses: list[float]
    metrics: list[dict[str, float]]
    parameters: dict[str, Tensor]


def check_case(ranks: Any, case: Case) -> None:
    """A case agrees with its reference.

    Raises:
        AssertionError: a loss, a metric or a parameter differs by more than `BOUND`, relative.
        RankError: a rank failed.
    """
    found, expected = trained(ranks, case), reference(ranks, case)
    assert len(found.losses) == len(expected.losses) > 0
    worst = worst_loss_error(found.losses, expected.losses)
    assert worst <= BOUND, f"a loss differs by {worst}"
    assert found.parameters.keys() == expected.parameters.keys()
    for name, value in expected.parameters.items():
        worst = float((found.parameters[name] - value).abs().max() / value.abs().max().clamp(min=1e-3))
        assert worst <= BOUND, f"{name} differs by {worst}"
    for mine, theirs in zip(found.metrics, expected.metrics, strict=True):
        assert mine == theirs, f"evaluation gives {mine}, not {theirs}"


def reference(ranks: Any, case: Case) -> Trained:
    """What `case` is compared with; many cases are compared with the same."""
    same, config = reference_of(case)
    config = config_of(same) if config is None else config
    key = json.dumps([same[1:], config], sort_keys=True)
    if key not in _REFERENCES:
        _REFERENCES[key] = trained(ranks, same, config)
    return _REFERENCES[key]


_REFERENCES: dict[str, Trained] = {}


def _on_parts(config: Mapping[str, Any], case: Case) -> bool:
    return planned(experiment_in(config), graph_of(case)).works_on_parts


def trained(ranks: Any, case: Case, config: Mapping[str, Any] | None = None) -> Trained:
    """Run a case, with another configuration if one is given; stopped and gone on with if the case says so."""
    chosen, config = named(case), dict(config_of(case) if config is None else config)
    size = int(chosen["ranks"])
    with tempfile.TemporaryDirectory() as folder:
        given = partition = partition_of(case)
        if given is not None and _on_parts(config, case):
            full = config["paradigm"].get("full_neighbors", True)
            write_parts(graph_of(case), GraphStream(graph_of(case)), given, Path(folder) / "parts", full_neighbors=full)
            partition = None
        if chosen["stopped"] == "once":
            ended = ranks(size).run(_attempt, case, config, folder, STOP_AT, partition)
            assert ended[-1]["stopped_by"] == "SIGTERM", "it was to be stopped"
        ended = ranks(size).run(_attempt, case, config, folder, None, partition)
        epochs = read_epochs(Path(folder))
    on_parts = _on_parts(config, case)
    losses = [loss for epoch in epochs for loss in ([epoch["metrics"]["loss/train"]] if on_parts else epoch["losses"])]
    metrics = [
        {name: value for name, value in epoch["metrics"].items() if name.partition("/")[2] in ("val", "test")}
        for epoch in epochs
    ]
    return Trained(losses, metrics, _joined(ended))


def _attempt(case: Case, config: dict[str, Any], folder: str, stop_at: int | None, partition: Any) -> dict[str, Any]:
    """What a rank runs."""
    graph, parts = graph_of(case), Path(folder) / "parts"
    frequency = torch.arange(graph.num_nodes) % 7
    artifacts = Artifacts(graph, partition, frequency, parts if parts.exists() else None)
    return attempt(config, folder, stop_at, artifacts=artifacts)


def _joined(ended: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Parameters of the last step: slices of ranks put together, what ranks have alike compared; trained rows too."""
    whole: dict[str, Tensor] = {}
    for name, first in ended[0]["state"].items():
        pieces = [end["state"][name] for end in ended]
        if name in ended[0]["slices"]:
            whole[name] = torch.cat(pieces, ended[0]["slices"][name][0])
            continue
        assert all(torch.equal(piece, first) for piece in pieces), f"ranks have another {name}"
        whole[name] = first
    if ended[0]["rows"] is not None:
        whole["rows"] = ended[0]["rows"]
    return {name: value.cpu() for name, value in whole.items()}
