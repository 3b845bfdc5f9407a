"""What runs must share for their counters to be compared."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gnnexp.experiment.build import batch_size_of
from gnnexp.record.runs import Run


@dataclass(frozen=True, order=True)
class Setting:
    """What runs must share for their counters to be compared.

    Attributes:
        dataset: name, shape and scale, to be read.
        ranks: that train.
        fanouts: of the sampler.
        batch: targets of a global batch, whatever `train.batch_of` counts.
        layers: of the model.
        shape: the dataset's, `null` where it has none.
        data: every option of the dataset but where it lies.
        model: its choice; a model may add self loops.
        sampler: its choice.
    """

    dataset: str
    ranks: int
    fanouts: str
    batch: str
    layers: str
    shape: str
    data: str
    model: str = "None"
    sampler: str = "None"

    def __str__(self) -> str:
        """For a caption."""
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{self.dataset} on {ranks} (fanouts {self.fanouts}, batch {self.batch}, {self.layers} layers)"


def setting_of(run: Run) -> Setting:
    """The setting of `run`, from its configuration."""
    dataset, hardware = run.config["dataset"], run.config["hardware"]
    data = {key: value for key, value in dataset.items() if key not in ("path", "buffer_bytes")}
    words = (run.value("dataset"), dataset.get("shape"), f"x{dataset['scale']}" if "scale" in dataset else "",
             f"{dataset['num_nodes']} nodes" if dataset.get("num_nodes") else "")
    return Setting(
        " ".join(filter(None, words)), int(hardware.get("nodes", 1) * hardware["workers"]),
        run.value("sampler.fanouts"), _global_batch(run), run.value("model.layers"),
        run.value("dataset.shape"), json.dumps(data, sort_keys=True), run.value("model"), run.value("sampler"))


def _global_batch(run: Run) -> str:
    if run.value("train.batch_of") in ("null", "run"):
        return run.value("train.batch_size")
    return str(batch_size_of(run.config))
