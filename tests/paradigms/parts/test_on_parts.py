"""What a dry run is asked for, and how many parts follow from what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import build
from gnnexp.experiment.needs import Profile
from gnnexp.graph.parts import open_parts, write_parts
from gnnexp.graph.stream import GraphStream
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.parts.allocation import reserved
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

GRAPH = nasty_graph(num_nodes=300, num_edges=3000)
DATA = GRAPH.topology_bytes + 4 * 300 * 13
FOUND = Profile(1_000_000, targets=20, batches=3, device="cpu")


def averaging(memory: int | None = None, **options: Any) -> tuple[Paradigm[Any], dict[str, Any]]:
    config = small_config(MODELS["sage"], hardware={"workers": 2}, train={"batch_size": 40})
    config["paradigm"] = {"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging", "reserve": "profile",
                          "memory": memory, **options}
    return build(config["paradigm"], Paradigm), config


@pytest.mark.parametrize(("options", "batch_size", "targets"), [
    ({}, 40, 20), ({"local_batch_size": 7}, 40, 7), ({}, None, -(-GRAPH.splits.train.numel() // 2)),
])
def test_a_trial_trains_the_largest_batches_that_a_part_could_have(
    options: dict[str, Any], batch_size: int | None, targets: int
) -> None:
    paradigm, config = averaging(**options)
    config["train"]["batch_size"] = batch_size
    trial = paradigm.dry_run({**config, "seed": 7}, GRAPH)
    assert trial is not None and trial["train"]["batch_size"] == targets
    assert trial == paradigm.dry_run({**config, "seed": 8}, GRAPH), "seeds of a sweep have one number of parts"
    assert build(trial["paradigm"], Paradigm).dry_run(trial, GRAPH) is None
    fixed, config = averaging(memory=5, reserve=3)
    assert fixed.dry_run(config, GRAPH) is None


@pytest.mark.parametrize(("room", "parts"), [(DATA, 2), (-(-DATA // 2), 2), (DATA // 2 - 1, 3), (DATA // 20 + 1, 20)])
def test_parts_follow_from_what_was_found(room: int, parts: int) -> None:
    """p = q if S <= q (M - T), else S / (M - T), rounded up."""
    paradigm, config = averaging(memory=reserved(FOUND.num_bytes) + room)
    planned = paradigm.profiled(config, FOUND)
    assert config["paradigm"]["reserve"] == "profile" and planned["paradigm"]["reserve"] == reserved(FOUND.num_bytes)
    assert build(planned["paradigm"], Paradigm).num_parts(planned, GRAPH) == parts


def test_computing_that_takes_all_is_refused() -> None:
    paradigm, config = averaging(memory=reserved(FOUND.num_bytes))
    with pytest.raises(ConfigError, match=r"dry run of 20 targets a batch.*(?s:.)*mend: set paradigm.memory="):
        paradigm.profiled(config, FOUND)


@pytest.mark.parametrize("key", ["paradigm.memory", "hardware.device_memory"])
def test_a_part_that_does_not_fit_with_its_halo_is_refused(tmp_path: Path, key: str) -> None:
    partition = parts(GRAPH, 3)
    write_parts(GRAPH, GraphStream(GRAPH), partition, tmp_path, full_neighbors=True)
    cut = open_parts(tmp_path)
    held = [open_part.graph for open_part in (cut.open(part) for part in range(3))]
    largest = max(graph.topology_bytes + 4 * graph.num_nodes * (13 + 1) + 8 * size.owned
                  for graph, size in zip(held, cut.sizes, strict=True))

    def problems(memory: int) -> list[Problem]:
        paradigm, config = averaging(memory if key == "paradigm.memory" else None, reserve=None)
        config["hardware"]["device_memory"] = memory
        return paradigm.check_parts(config, GRAPH, cut)

    assert largest > DATA / 3 and problems(largest) == []
    (problem,) = problems(largest - 1)
    assert problem.key == key and str(largest) in problem.allowed and "partitioner.num_parts=6" in problem.mend
    paradigm, config = averaging(None, reserve=None)
    assert paradigm.check_parts(config, GRAPH, cut) == [], "nobody says what a rank has"
