"""What every preset computes and counts, and what every component's options default to, kept in `tests/frozen`.

`python tests/support/frozen_results.py` writes both files. It refuses results or defaults that changed without a raised
version: finished runs would be taken for runs of today.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gnnexp
from gnnexp.cli.console import make_console
from gnnexp.cli.running.execute import execute
from gnnexp.cli.running.prepare import CheckedConfig, checked_config, prepare
from gnnexp.comm.environment import read_environment
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.signature import parameters_of
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.kinds import KINDS, kind_of
from gnnexp.experiment.run_key import keyed
from gnnexp.launchers.base import Launchers
from gnnexp.paradigms.base import trainer_of
from gnnexp.provenance.names import name_of, version_of
from gnnexp.provenance.recorded import RESULT_VERSION
from gnnexp.record.records import EpochLog, read_epochs
from gnnexp.testing.ranks import RankPools
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import probe_memory, train

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "frozen"
SYSTEMS = sorted(file.stem for file in (ROOT / "conf" / "system").glob("*.yaml"))
# What DGL draws depends on the number of OpenMP threads, which a launched process has from its start.
DRAWN_BY_DGL = ("dgl_reference", "distdgl", "fastsample_hybrid")
NEED_DGL = ("dgl_full_graph", *DRAWN_BY_DGL)
ON_ONE = ("dgl_full_graph",)
# Two epochs of a few steps on two ranks: the second epoch uses moments of the optimizer, stale rows and caches.
SMALL = (
    "dataset=digits",
    "train.epochs=2",
    "train.steps_per_epoch=2",
    "train.dtype=float64",
    "train.eval_every=null",
    "train.checkpoint_every=0",
    "hardware.workers=2",
    "hardware.threads=1",
    "model.hidden=8",
    "tracker=none",
)
COUNTS = ("comm/", "work/", "tier/")
# BLAS sums in another order on other processors.
TOLERANCE = 1e-10


def measured(system: str, ranks: RankPools, folder: Path) -> dict[str, Any]:
    """Losses of all steps, counts of both epochs, and the versions of a preset's components."""
    more = ["hardware.workers=1"] if system in ON_ONE else []
    checked = checked_config([f"system={system}", *SMALL, *more, f"hydra.run.dir={folder / system}"], None)
    (_launch if system in DRAWN_BY_DGL else partial(_run, ranks))(checked)
    composed = checked.composed
    epochs = read_epochs(composed.run_dir)
    counts = [
        {name: value for name, value in epoch["metrics"].items() if name.startswith(COUNTS) and not name.endswith("_s")}
        for epoch in epochs
    ]
    return {
        "versions": versions_in(keyed(composed.config)),
        "losses": [epoch["losses"] for epoch in epochs],
        "counts": counts,
    }


def _launch(checked: CheckedConfig) -> None:
    """As a user's run: with ranks of its own."""
    with Launchers() as launchers:
        outcome = execute(checked, make_console(quiet=True), launchers)
    assert outcome.status == "finished", outcome.message


def _run(ranks: RankPools, checked: CheckedConfig) -> None:
    """In ranks of a pool, which need not start."""
    composed, experiment = checked
    composed.run_dir.mkdir(parents=True)
    data = prepare(experiment, composed.run_dir)
    artifacts = Artifacts(data.folder, data.partition, data.presample, data.parts, data.facts, data.plan.digest)
    ranks(experiment.num_ranks).run(_trained, dict(experiment.config.mapping), artifacts, composed.run_dir)


def _trained(config: dict[str, Any], artifacts: Artifacts, run_dir: Path) -> None:
    """What a rank of the pool runs: a worker's training."""
    environment = read_environment()
    job = assemble(experiment_of(config), artifacts, run_dir, environment)
    probed = probe_memory(job)
    train(job, trainer_of(job), EpochLog(run_dir, environment.rank), probed)
    job.store.finish()
    job.comm.release()


def versions_in(node: object) -> dict[str, int]:
    """Versions by name of the components in a key's content, and that of all results."""
    found = {"result": RESULT_VERSION}
    if isinstance(node, Mapping):
        if isinstance(node.get("name"), str) and isinstance(node.get("version"), int):
            found[node["name"]] = node["version"]
        for value in node.values():
            found |= versions_in(value)
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two measurements, in words."""
    pairs = [pair for rows in zip(before["losses"], after["losses"], strict=True) for pair in zip(*rows, strict=True)]
    worst = max((abs(new - old) / max(abs(old), 1e-300) for old, new in pairs), default=0.0)
    found = [] if worst <= TOLERANCE else [f"losses: by {worst:.1e}"]
    for epoch, (old, new) in enumerate(zip(before["counts"], after["counts"], strict=True)):
        found += [
            f"epoch {epoch}, {name}: {old.get(name)} -> {new.get(name)}"
            for name in sorted({*old} | {*new})
            if not _same(old.get(name), new.get(name))
        ]
    return found


def _without_new(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A measurement without counts of new names, which change no result and no count of before."""
    known = [
        {name: counts[name] for name in old if name in counts}
        for old, counts in zip(before["counts"], after["counts"], strict=True)
    ]
    return {**after, "counts": known}


def _same(old: float | None, new: float | None) -> bool:
    """Counts are equal; ratios of counts may be rounded in another way."""
    return old == new or (old is not None and new is not None and math.isclose(old, new, rel_tol=1e-12))


def components() -> dict[str, dict[str, Any]]:
    """Version and defaults of every class of gnnexp that a configuration can name, by its name in keys."""
    found: dict[str, dict[str, Any]] = {
        name: {"version": RESULT_VERSION, "defaults": _defaults(cls)}
        for name, cls in (("train", TrainConfig), ("hardware", HardwareConfig))
    }
    for cls in _classes():
        name = name_of(f"{cls.__module__}.{cls.__qualname__}")
        assert name not in found, f"{name}: two classes have this name in keys"
        found[name] = {"version": version_of(cls), "defaults": _defaults(cls)}
    return dict(sorted(found.items()))


def _classes() -> Iterator[type]:
    """Classes of the groups whose options are a part of keys, and of components in them (caches, decoders)."""
    from gnnexp.feature_stores.cache import CacheOptions
    from gnnexp.tasks.decoders import Decoder

    kinds = [kind_of(group) for group in KINDS if group not in ("tracker", "hardware.launcher")]
    rooms = {kind.__module__.split(".")[1] for kind in kinds} | {"paradigms"}  # `Method` is in another room
    for room in sorted(rooms):
        package = importlib.import_module(f"gnnexp.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"gnnexp.{room}."):
            importlib.import_module(module.name)
    waiting, seen = [*kinds, CacheOptions, Decoder], set()
    while waiting:
        cls = waiting.pop()
        if cls in seen:
            continue
        seen.add(cls)
        waiting += cls.__subclasses__()
        is_private = inspect.isabstract(cls) or cls.__name__.startswith("_")
        if cls.__module__.startswith(gnnexp.__name__) and not is_private:
            yield cls


def _defaults(cls: type) -> dict[str, str]:
    """Defaults by option, as text."""
    return {name: repr(one.default) for name, one in (parameters_of(cls) or {}).items() if not one.required}


def unraised(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names that are gone, and defaults that changed although the version did not."""
    found = [f"{name}: no class has this name in keys any more" for name in before if name not in after]
    for name in [name for name in before if name in after and before[name]["version"] == after[name]["version"]]:
        old, new = before[name]["defaults"], after[name]["defaults"]
        found += [
            f"{name}.{option}: default was {old[option]}, is {new[option]}, and version is still "
            f"{after[name]['version']}"
            for option in old
            if option in new and old[option] != new[option]
        ]
    return found


def read(name: str) -> dict[str, Any]:
    """One of the two files."""
    file = FOLDER / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def _write(name: str, found: Mapping[str, Any]) -> None:
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(found[key], sort_keys=True)}" for key in sorted(found))
    (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> int:
    """Write both files; 1 if something changed without a raised version."""
    old, new = read("presets"), {}
    with tempfile.TemporaryDirectory() as folder, closing(RankPools()) as ranks:
        for system in SYSTEMS:
            new[system] = measured(system, ranks, Path(folder))
    wrong = unraised(read("components"), components())
    for system in [name for name in old if name in new and old[name]["versions"] == new[name]["versions"]]:
        wrong += [f"{system}: {line}" for line in differences(old[system], _without_new(new[system], old[system]))]
    if wrong:
        print("raise the `version` of the component that changed, or RESULT_VERSION:", *wrong, sep="\n")
        return 1
    _write("presets", new)
    _write("components", components())
    return 0


if __name__ == "__main__":
    sys.exit(main())
