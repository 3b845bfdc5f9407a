"""The small runs that are disturbed, and the undisturbed ones that they are compared with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from random import Random

EPOCHS = 16
# Sampled batches, on all paradigms and feature stores; the full graph, in every way in which it is cut.
SAMPLED = ("dgl", "distdgl", "fastsample", "gsplit", "p3", "quiver", "sdt_gnn")
FULL_GRAPH = ("distgnn", "distgnn_cd5", "hongtu", "neutronstar_comm", "neutrontp", "pipegcn_gf", "sancus")


@dataclass(frozen=True)
class Setup:
    """A configuration of some seconds.

    Attributes:
        system: of conf/system.
        dataset: `digits` or `cora`.
        workers: ranks.
        seed: of the run.
        epochs: of it.
    """

    system: str
    dataset: str = "digits"
    workers: int = 2
    seed: int = 0
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """Of its undisturbed run."""
        return f"{self.system}-{self.dataset}-{self.workers}-{self.seed}-{self.epochs}"

    @property
    def fixed(self) -> list[str]:
        """Overrides, but for the seed."""
        data = ["dataset=planetoid", "dataset.name=cora"] if self.dataset == "cora" else [f"dataset={self.dataset}"]
        sampled = ["sampler.fanouts=[4,4]", "train.batch_size=256", "train.batch_of=run"]
        return [
            f"system={self.system}",
            *data,
            "model.hidden=16",
            "model.layers=2",
            "hardware.threads=1",
            f"hardware.workers={self.workers}",
            f"train.epochs={self.epochs}",
            "train.eval_every=3",
            "train.checkpoint_every=1",
            *(sampled if self.system in SAMPLED else []),
        ]

    @property
    def overrides(self) -> list[str]:
        """All of them."""
        return [*self.fixed, f"seed={self.seed}"]


def random_setup(random: Random) -> Setup:
    """Any of them; few with three ranks, so that undisturbed runs serve many storms."""
    datasets = ["digits", "digits", "cora"] if os.environ.get("GNNEXP_DATA") else ["digits"]
    system, dataset = random.choice([*SAMPLED, *FULL_GRAPH]), random.choice(datasets)
    three = random.random() < 0.25
    return Setup(system, dataset, 3 if three and dataset == "digits" and system in ("dgl", "sancus", "gsplit") else 2)
