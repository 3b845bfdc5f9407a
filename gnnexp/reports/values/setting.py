"""What runs must share for their counters to be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


def setting_columns(settings: Sequence[Setting]) -> tuple[str, ...]:
    """Fields of a setting that head a row: dataset and ranks, and what else differs between `settings`."""
    candidates = ("fanouts", "batch", "layers", "model", "sampler")
    differing = (name for name in candidates if len({getattr(one, name) for one in settings}) > 1)
    return ("dataset", "ranks", *differing)


def splits_one_batch(run: Run) -> bool:
    """Whether all ranks share a mini-batch by split parallelism (in groups of ranks only those of a group do)."""
    groups = run.value("paradigm.group_size")
    return run.value("paradigm") == "split_parallel" and groups in ("null", str(setting_of(run).ranks))
