"""What one steady step of every way may cost on a GPU, and what crosses to it then.

`python -m emulated_gpu tests/support/budgets.py` measures all of them and writes them to `budgets.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from emulated_gpu.steady import Step, steady_step
from gnnexp.paradigms.columns.trainer import ColumnTrainer
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer
from gnnexp.placement.chunks import Chunk
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import WAYS, config_in, placed

FILE = Path(__file__).parents[1] / "emulated_gpu" / "budgets.csv"
SIZES = (1, 2)
# Names of figures, and what is counted for them.
FIGURES = {
    "waits": "waits",
    "free_waits": "waits",
    "launches": "launches",
    "triton_launches": "launches",
    "pageable_bytes": "pageable_h2d_bytes",
}
ID_BYTES = KEY_BYTES = 8
SLACK = 0.9  # a figure below this share of its budget is worth a new budget


@dataclass(frozen=True)
class Budget:
    """Of a step of GraphSAGE on `nasty_graph`; the most of any rank.

    Attributes:
        way, ranks: what is trained.
        waits: how often the host waits for the GPU.
        free_waits: the same with `measure=free`: what a step needs, and no timer.
        launches: kernels, with `model.kernel=auto`.
        triton_launches: kernels, with `model.kernel=triton`.
        pageable_bytes: to the GPU from memory that is not pinned.
    """

    way: str
    ranks: int
    waits: int
    free_waits: int
    launches: int
    triton_launches: int
    pageable_bytes: int


@dataclass(frozen=True)
class Measured:
    """A steady step of a rank with `measure=exact`, with `measure=free`, and with that and `model.kernel=triton`."""

    exact: Step
    free: Step
    triton: Step

    def figure(self, name: str) -> int:
        """A figure of `FIGURES`."""
        return int(getattr(self._step(name), name.removeprefix("free_").removeprefix("triton_")))

    def lines(self, name: str) -> str:
        """The lines that caused a figure, largest first."""
        return self._step(name).lines(FIGURES[name])

    def _step(self, name: str) -> Step:
        return self.free if name == "free_waits" else self.triton if name == "triton_launches" else self.exact


def read_budgets() -> dict[tuple[str, int], Budget]:
    """Of the file."""
    with FILE.open(newline="") as file:
        rows = [
            Budget(row["way"], *(int(row[field.name]) for field in fields(Budget)[1:])) for row in csv.DictReader(file)
        ]
    return {(row.way, row.ranks): row for row in rows}


def write_budgets(budgets: Sequence[Budget]) -> None:
    """Into the file."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Budget))
        writer.writerows(astuple(budget) for budget in budgets)


def crossing(way: str, trainer: Trainer[Any], recorded: int) -> int:
    """Bytes to the GPU in a step.

    What the record counts, and two keys of dropout masks for every layer. Labels are on the GPU from setup on. Ways in
    chunks read rows that are on the GPU already, which the record counts as crossing: topology and ids cross there.
    """
    keys = 2 * KEY_BYTES * trainer.evaluation_model().num_layers
    if way == "chunks":  # every layer forwards and again backwards; layer 0 gives no gradient of its rows
        assert isinstance(trainer, EdgeCutTrainer) and trainer.local is not None
        return keys + sum(_visits(chunks, 2, 2 + (index > 0)) for index, chunks in enumerate(trainer.local.chunks))
    if way == "coupled_in_chunks":  # backwards over the transpose; not layer 0, which aggregates features
        assert isinstance(trainer, ColumnTrainer)
        return keys + sum(_visits(trainer.chunks, number, number) for number in (1, 2))
    return recorded + keys


def _visits(chunks: Sequence[Chunk], times: int, reads: int) -> int:
    """Bytes of chunks whose topology crosses `times`, and the ids of whose rows `reads` times."""
    return sum(
        times * chunk.block.nbytes() + reads * ID_BYTES * (0 if chunk.rows is None else chunk.rows.numel())
        for chunk in chunks
    )


def _step(way: str, size: int, model: Mapping[str, Any]) -> Measured:
    graph = nasty_graph()
    config = config_in(way, model, hardware={"workers": size, "device": "cuda"})
    return Measured(
        *(
            steady_step(
                {**config, "measure": measure, "model": {**config["model"], "kernel": kernel}},
                graph,
                placed(way, graph, size),
                partial(crossing, way),
            )
            for measure, kernel in (("exact", "auto"), ("free", "auto"), ("free", "triton"))
        )
    )


def measured(ranks: RankPools, way: str, size: int, model: Mapping[str, Any] = MODELS["sage"]) -> list[Measured]:
    """Steady steps of every rank."""
    return ranks(size).run(_step, way, size, model)


def most(way: str, steps: Sequence[Measured]) -> Budget:
    """The budget that steps just keep."""
    return Budget(way, len(steps), *(max(step.figure(name) for step in steps) for name in FIGURES))


def kept(budget: Budget, steps: Sequence[Measured]) -> list[str]:
    """What is wrong: figures above their budget, with the lines that do it, or far below it."""
    found, problems = most(budget.way, steps), []
    for name in FIGURES:
        figure, allowed = getattr(found, name), getattr(budget, name)
        if figure > allowed:
            worst = max(steps, key=lambda step: step.figure(name))
            problems.append(f"{name}: {figure}, and the budget is {allowed}: {worst.lines(name)}")
        if figure < SLACK * allowed:
            row = ",".join(map(str, astuple(found)))
            problems.append(f"{name}: {figure}, far below the budget of {allowed}: write `{row}` into {FILE.name}")
    return problems


def _main() -> None:
    ranks = RankPools()
    try:
        write_budgets([most(way, measured(ranks, way, size)) for way in WAYS for size in SIZES])
    finally:
        ranks.close()


if __name__ == "__main__":
    _main()
