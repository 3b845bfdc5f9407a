"""Keys of today for runs of gnnexp 0.1: how a sweep finds them, and how `gnnexp rekey` rewrites them.

Runs of 0.1 were keyed by names of classes, by all options, and by digests of gnnexp's own modules.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnnexp.datasets.base import Dataset, VerifiedDataset
from gnnexp.errors import ProblemsError
from gnnexp.experiment.build import build
from gnnexp.experiment.run_key import run_key
from gnnexp.provenance.code import RunCode, code_of, targets_in, targets_of_results
from gnnexp.provenance.older import MOVED, as_today, name_today
from gnnexp.provenance.recorded import RESULT_VERSION, is_of_other_version, own_of, recorded_inputs
from gnnexp.record.archive import imported_from
from gnnexp.record.attempts import alone
from gnnexp.record.owner import check_own
from gnnexp.record.records import JOB_FILE, RESULT_FILE, load_job, load_result, write_json

# What `code.changed` of a run of 0.1 says if its results are those of the last commit of 0.1. Vertex parallelism read
# old rows wrongly before this digest.
_VERTEX_PARALLEL, _MENDED = "gnnexp.paradigms.vertex_parallel.VertexParallel", {"gnnexp.comm.stale": "efc18f8fb78e4ca4"}
# Options that came after 0.1 had keys, with the values that are left out of them.
_LATER = (("weights", True), ("link_split", None))
# Modules of 0.1 whose datasets had `link_split`, which was a part of their keys.
_HAD_LINK_SPLIT = tuple(f"gnnexp.datasets.{name}" for name in ("edge_list", "generated.rmat", "tables", "formats"))
# Classes that may be named by anybody. Others are imported only if the user names them, too.
_OWN = ("gnnexp.", "torch.optim.")
NOT_THE_LAST = "was made by code of gnnexp 0.1 that may give other results"
CURRENT = "has the keys of today"
LATER = "was made by a later gnnexp"
NO_KEY = "its ranks executed several codes, so it had no key"
NO_DATA = "its data are not here, or are others"


@dataclass(frozen=True)
class RekeyOutcome:
    """What became of a run: `why` is why it keeps its key; empty if it has a new one."""

    run_dir: Path
    why: str


def key_of_older(
    config: Mapping[str, Any],
    provenance: Mapping[str, Any],
    datasets: Iterable[Dataset],
    named: Collection[str] = (),
) -> str:
    """The key that a run of gnnexp 0.1 would have today; empty if it had none, or if its data are not here.

    A record chooses neither a class that is imported nor a file that is read.

    Args:
        config: configuration of the record.
        provenance: where the record comes from.
        datasets: the user's own data sets. The run's data are here if one of them has the recorded key.
        named: classes, by dotted names, that the user's own configurations name.
    """
    if not provenance.get("run_key") or "result_version" in provenance:
        return ""
    config, recorded = as_today(config), str(provenance.get("dataset_key"))
    if _foreign(config, named):
        return ""
    try:
        data = next((dataset.key() for dataset in datasets if _key_of_0_1(dataset) == recorded), "")
        return data and run_key(config, data, RunCode(own_of(provenance.get("code"))), recorded_inputs(provenance))
    except (ImportError, ProblemsError, OSError):  # a class that is not here, or files that are not
        return ""


def rekeyed_provenance(config: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The provenance of a run of 0.1 with the keys of today, or why it keeps its own."""
    config, code = as_today(config), provenance.get("code") or {}
    if "result_version" in provenance:
        return LATER
    if not provenance.get("run_key"):
        return NO_KEY
    mended = _MENDED if _VERTEX_PARALLEL in targets_in(config.get("paradigm")) else {}
    if code.get("changed", {}) != mended:
        return NOT_THE_LAST
    if foreign := _foreign(config):
        return f"{foreign[0]} is no class of gnnexp: `gnnexp sweep --changed-code` takes the run"
    dataset = _dataset(json.dumps(config.get("dataset"), sort_keys=True))
    key = "" if dataset is None else key_of_older(config, provenance, [dataset])
    if dataset is None or not key:
        return NO_DATA
    return {
        **provenance,
        "run_key": key,
        "dataset_key": dataset.key(),
        "result_version": RESULT_VERSION,
        "code": {"own": own_of(code)},
        "rekeyed": {"run_key": provenance["run_key"], "dataset_key": str(provenance.get("dataset_key"))},
    }


def rekey(run_dir: Path, *, write: bool) -> RekeyOutcome:
    """Give a run of 0.1 the keys of today, in `job.json` and `result.json`; other runs stay as they are.

    This opens the data that the record names, so the record must be the user's own.

    Args:
        run_dir: the directory of the run.
        write: whether to write the files.

    Raises:
        ConfigError: another process works on the run, or it belongs to another user.
    """
    try:
        job = load_job(run_dir)
    except (OSError, ValueError) as error:
        return RekeyOutcome(run_dir, f"{JOB_FILE}: {error}"[:200])
    if not is_of_other_version(job["provenance"]):
        return RekeyOutcome(run_dir, CURRENT)
    if source := imported_from(job["provenance"]):
        return RekeyOutcome(run_dir, f"was imported from {source}: gnnexp opens no data that it names")
    check_own(run_dir, "would open the data that it names", "its owner can give it new keys")
    files = {JOB_FILE: job}
    try:
        files[RESULT_FILE] = load_result(run_dir)
    except FileNotFoundError:
        pass  # it has not ended
    except (OSError, ValueError) as error:
        return RekeyOutcome(run_dir, f"{RESULT_FILE}: {error}"[:200])
    provenances = {
        name: rekeyed_provenance(content["config"], content["provenance"]) for name, content in files.items()
    }
    if why := next((reason for reason in provenances.values() if isinstance(reason, str)), ""):
        return RekeyOutcome(run_dir, why)
    if write:
        with alone(run_dir):
            for name, content in reversed(files.items()):  # `job.json` last: a killed call begins again
                write_json(run_dir / name, {**content, "provenance": provenances[name]})
    return RekeyOutcome(run_dir, "")


def _foreign(config: Mapping[str, Any], named: Collection[str] = ()) -> list[str]:
    """The classes of a record that are neither gnnexp's nor named by the user: they are not imported."""
    targets = map(name_today, targets_of_results(config))
    return [target for target in targets if not target.startswith(_OWN) and target not in named]


@cache
def _dataset(node: str) -> Dataset | None:
    """The data set of a mapping in JSON; None if it cannot be made here."""
    try:
        dataset: Dataset = build(json.loads(node), Dataset)
    except (ProblemsError, OSError):
        return None
    return dataset


@cache
def _key_of_0_1(dataset: Dataset) -> str:
    """The key that data had in 0.1."""
    older = copy.copy(dataset)
    object.__setattr__(older, "described", lambda: _described(dataset))
    return older.key()


def _described(dataset: Dataset) -> str:
    """The description of a dataset in its key of 0.1: first name of the class, version, all options, own code."""
    name = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    first = next((former for former, today in MOVED.items() if today == name), name)
    later = _LATER[:1] if name.startswith(_HAD_LINK_SPLIT) else _LATER
    options = {key: value for key, value in dataset.options().items() if (key, value) not in later}
    if isinstance(dataset, VerifiedDataset):
        options["verify"] = dataset.verify or not dataset.byte_problems()
    own = code_of([type(dataset).__module__]).own
    code = json.dumps({"changed": {}, "own": dict(own)}, sort_keys=True) if own else ""
    return json.dumps([first, dataset.version, options], sort_keys=True) + code
