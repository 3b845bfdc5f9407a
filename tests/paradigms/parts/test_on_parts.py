"""How many parts follow from a rank's memory, and that each fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnexp.errors import Problem
from gnnexp.experiment.build import build
from gnnexp.graph.parts import open_parts, write_parts
from gnnexp.graph.stream import GraphStream
from gnnexp.paradigms.base import Paradigm
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

GRAPH = nasty_graph(num_nodes=300, num_edges=3000)
DATA = GRAPH.topology_bytes + 4 * 300 * 13


def averaging(memory: int | None = None, **options: Any) -> tuple[Paradigm[Any], dict[str, Any]]:
    config = small_config(MODELS["sage"], hardware={"workers": 2}, train={"batch_size": 40})
    config["paradigm"] = {"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging", "memory": memory,
                          **options}
    return build(config["paradigm"], Paradigm), config


@pytest.mark.parametrize(("room", "parts"), [(DATA, 2), (-(-DATA // 2), 2), (DATA // 2 - 1, 3), (DATA // 20 + 1, 20)])
def test_parts_follow_from_the_room(room: int, parts: int) -> None:
    """p = q if S <= q (M - T), else S / (M - T), rounded up."""
    paradigm, config = averaging(memory=1_000_000 + room, reserve=1_000_000)
    assert paradigm.num_parts(config, GRAPH) == parts


@pytest.mark.parametrize("key", ["paradigm.memory", "hardware.device_memory"])
def test_a_part_that_does_not_fit_with_its_halo_is_refused(tmp_path: Path, key: str) -> None:
    partition = parts(GRAPH, 3)
    write_parts(GRAPH, GraphStream(GRAPH), partition, tmp_path, full_neighbors=True)
    cut = open_parts(tmp_path)
    held = [open_part.graph for open_part in (cut.open(part) for part in range(3))]
    largest = max(graph.topology_bytes + 4 * graph.num_nodes * (13 + 1) + 8 * size.owned
                  for graph, size in zip(held, cut.sizes, strict=True))

    def problems(memory: int) -> list[Problem]:
        paradigm, config = averaging(memory if key == "paradigm.memory" else None)
        config["hardware"]["device_memory"] = memory
        return paradigm.check_parts(config, GRAPH, cut)

    assert largest > DATA / 3 and problems(largest) == []
    (problem,) = problems(largest - 1)
    assert problem.key == key and str(largest) in problem.allowed and "partitioner.num_parts=6" in problem.mend
    paradigm, config = averaging()
    assert paradigm.check_parts(config, GRAPH, cut) == [], "nobody says what a rank has"
