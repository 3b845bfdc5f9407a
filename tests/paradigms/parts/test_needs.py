"""How many parts follow from a rank's memory, and that each fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_in, planned

from gnnexp.components.plan import Plan
from gnnexp.errors import Problem
from gnnexp.experiment.build import build
from gnnexp.graph.parts import PartSizes, open_parts, write_parts
from gnnexp.graph.stream import GraphStream
from gnnexp.paradigms.base import Paradigm
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

GRAPH = nasty_graph(num_nodes=300, num_edges=3000)
DATA = GRAPH.topology_bytes + 4 * 300 * 13


def averaging(memory: int | None = None, **options: Any) -> tuple[Paradigm, dict[str, Any]]:
    config = small_config(MODELS["sage"], hardware={"workers": 2}, train={"batch_size": 40})
    config["paradigm"] = {"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging", "memory": memory, **options}
    return build(config["paradigm"], Paradigm), config


@pytest.mark.parametrize(("room", "parts"), [(DATA, 2), (-(-DATA // 2), 2), (DATA // 2 - 1, 3), (DATA // 20 + 1, 20)])
def test_parts_follow_from_the_room(room: int, parts: int) -> None:
    """p = q if S <= q (M - T), else S / (M - T), rounded up."""
    paradigm, config = averaging(memory=1_000_000 + room, reserve=1_000_000)
    assert planned(experiment_in(config), GRAPH, paradigm).num_parts == parts


@pytest.mark.parametrize("key", ["paradigm.memory", "hardware.device_memory"])
def test_a_part_that_does_not_fit_with_its_halo_is_refused_where_their_number_is_told(tmp_path: Path, key: str) -> None:
    partition = parts(GRAPH, 3)
    write_parts(GRAPH, GraphStream(GRAPH), partition, tmp_path, full_neighbors=True)
    cut = open_parts(tmp_path)
    held = [open_part.graph for open_part in (cut.open(part) for part in range(3))]
    largest = max(
        graph.topology_bytes + 4 * graph.num_nodes * (13 + 1) + 8 * size.owned
        for graph, size in zip(held, cut.sizes, strict=True)
    )

    def problems(memory: int) -> list[Problem]:
        paradigm, config = averaging(memory if key == "paradigm.memory" else None)
        config["hardware"]["device_memory"] = memory
        config["partitioner"]["num_parts"] = 3
        return list(planned(experiment_in(config), GRAPH, paradigm, cut.sizes).problems)

    assert largest > DATA / 3 and problems(largest) == []
    (problem,) = problems(largest - 1)
    assert problem.key == key and str(largest) in problem.allowed and "partitioner.num_parts=6" in problem.fix
    paradigm, config = averaging()
    assert not planned(experiment_in(config), GRAPH, paradigm, cut.sizes).problems, "nobody says what a rank has"


def test_more_parts_are_wanted_until_each_fits_with_its_halo(tmp_path: Path) -> None:
    """Not without end: eight times those of section III-C at most, and no more than there are vertices."""
    paradigm, config = averaging(memory=DATA, reserve=DATA // 2)
    experiment = experiment_in(config)
    assert planned(experiment, GRAPH, paradigm).num_parts == 2

    def again(count: int, vertices: int) -> Plan:
        cut = [PartSizes(vertices=vertices, owned=GRAPH.num_nodes // count, edges=1000, train=10)] * count
        return planned(experiment, GRAPH, paradigm, cut)

    too_large, small = 2 * GRAPH.num_nodes, GRAPH.num_nodes // 4
    assert again(2, small).num_parts == 2 and again(2, too_large).num_parts == 4
    assert again(8, too_large).num_parts == 16 and not again(8, too_large).problems
    (problem,) = again(16, too_large).problems
    assert problem.key == "paradigm.memory" and "partitioner.num_parts=32" in problem.fix
