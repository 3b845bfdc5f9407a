"""Names that other libraries and earlier versions have for keys of gnnexp, and what they mean here.

One line per meaning. A key is proposed only if it composes with the rest of the command (`gnnexp.config.overrides`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """What a key of other libraries means here.

    Attributes:
        keys: keys that take the typed value, and `key=value`.
        further: what to do instead or besides, in words.
    """

    keys: tuple[str, ...] = ()
    further: str = ""


# By the last part of the key, whatever stands before it.
MEANT: Mapping[str, Meaning] = {
    name: meaning
    for names, meaning in (
        ("num_heads n_heads nheads", Meaning(("model.heads",), "heads are of model=gat")),
        ("num_layers n_layers", Meaning(("model.layers",))),
        ("hidden_dim hidden_size hidden_channels hidden_feats num_hidden", Meaning(("model.hidden",))),
        ("in_channels in_feats out_channels out_feats num_classes", Meaning((), "no key: the data say it")),
        ("aggr aggregator aggregator_type", Meaning((), "the model says it: model=sage takes means, model=gin sums")),
        ("gpus num_gpus n_gpus world_size nproc nproc_per_node num_ranks", Meaning(("hardware.workers",))),
        ("num_nodes num_machines", Meaning(("hardware.nodes",), "hardware=slurm_cpu and slurm_gpu have several")),
        ("num_workers num_sampling_workers", Meaning(("sampler.threads",), "ranks are hardware.workers")),
        ("num_neighbors fanout num_samples sizes", Meaning(("sampler.fanouts",))),
        ("replace with_replacement", Meaning((), "no key: neighbours are drawn without replacement")),
        ("root data_dir data_root", Meaning(("dataset.path",), "GNNEXP_DATA names the folder of all data")),
        (
            "amp fp16 bf16 precision mixed_precision autocast",
            Meaning(
                ("train.dtype", "train.activations=bf16"),
                "train.matmul=bf16 rounds products, train.activations=bf16 the rows between layers",
            ),
        ),
        ("early_stopping early_stop", Meaning(("train.patience",))),
        ("num_epochs max_epochs n_epochs", Meaning(("train.epochs",))),
        ("learning_rate", Meaning(("optimizer.lr",))),
        ("lr_scheduler", Meaning(("scheduler",))),
        ("grad_clip clip_grad max_grad_norm gradient_clip_val", Meaning(("train.clip_norm",))),
        (
            "gradient_accumulation gradient_accumulation_steps accumulate_grad_batches",
            Meaning((), "a larger train.batch_size: its gradients are the same"),
        ),
        ("compile", Meaning((), "nothing to turn on: kernels are compiled (model.kernel)")),
        ("profile profiler", Meaning((), "nothing to turn on: the record has the seconds of each phase")),
        ("log_every log_interval log_every_n_steps", Meaning((), "nothing to set: every epoch is recorded")),
        ("save_every checkpoint_interval checkpoint_freq", Meaning(("train.checkpoint_every",))),
        ("checkpoint resume", Meaning((), "gnnexp resume RUN_DIR goes on from train.checkpoint_every")),
        ("run_name experiment_name", Meaning(("name",), "tracker.experiment names MLflow's experiment")),
        ("project", Meaning(("tracker.experiment",))),
    )
    for name in names.split()
}


def meant(word: str, value: str = "") -> tuple[str, ...]:
    """The overrides that a key stands for, with the typed `value`; empty if there are none. `word`: its last part."""
    found = MEANT.get(word.lower(), Meaning()).keys
    return tuple(one if "=" in one or not value else f"{one}={value}" for one in found)


def meaning_in_words(word: str, value: str, composes: Callable[[str], bool]) -> str:
    """The fix for a key of other libraries; empty if it is not known, or nothing of it is right here."""
    lines = [line for line in meant(word, value) if composes(line)]
    proposal = f"did you mean {' or '.join(lines)}?" if lines else ""
    return " ".join(filter(None, (proposal, MEANT.get(word.lower(), Meaning()).further)))
