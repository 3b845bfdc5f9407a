"""The key by which a run is recognised: equal keys, equal results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.provenance.code import BASELINE, Code, as_known_today, still_changed
from gnnexp.provenance.older import as_first

# Keys that change neither a result nor a time of it.
_WITHOUT_RESULTS = {
    "hardware": {"launcher", "timeout_s", "max_restarts", "detach", "sampling", "latency", "flops_tf32", "l2",
                 "launch_s"},
    "train": {"checkpoint_every", "checkpoints_kept"},
}
_LINKS_WITHOUT_RESULTS = {"d2h", "duplex", "h2d_gather"}


def run_key(config: Mapping[str, Any], dataset_key: str, code: Code, inputs: Mapping[str, str] | None = None) -> str:
    """What makes two runs the same: configuration, data and code.

    Where records and files are is no part of it. The machine is none either: a run on another machine is found, and it
    is said what it was made on (`gnnexp.provenance.machine`).

    Args:
        config: resolved.
        dataset_key: of the data's content.
        code: that the run executes (`code_of_config`).
        inputs: digests of what components other than the dataset read from files, by config key.
    """
    config = as_first(config)
    content = {name: value for name, value in config.items() if name not in ("tracker", "name", "preflight")}
    for group, unimportant in _WITHOUT_RESULTS.items():
        content[group] = {key: value for key, value in config[group].items() if key not in unimportant}
    if links := content["hardware"].get("links"):
        content["hardware"]["links"] = {k: v for k, v in links.items() if k not in _LINKS_WITHOUT_RESULTS}
    content["dataset"] = {key: value for key, value in config["dataset"].items() if key != "path"}
    # Code of which nothing is new adds nothing: runs made before code was a part of the key keep theirs.
    parts = [int(BASELINE), content, dataset_key, *([code.to_json()] if code else []),
             *([{"inputs": dict(inputs)}] if inputs else [])]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def recorded_key(config: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The key of a recorded run by what is known today, empty where none was recorded.

    A change of gnnexp may be found to give the same results after a run was made with it.
    """
    key, code = str(provenance.get("run_key") or ""), provenance.get("code") or {}
    if not key or not code.get("changed"):
        return key
    known = Code(still_changed(code["changed"]), code["own"])
    return run_key(config, str(provenance.get("dataset_key")), known, recorded_inputs(provenance))


def recorded_inputs(provenance: Mapping[str, Any]) -> Mapping[str, str] | None:
    """What a recorded run read from files besides its dataset (`run_key`); None where the record does not say."""
    inputs = provenance.get("inputs")
    return {str(key): str(digest) for key, digest in inputs.items()} if isinstance(inputs, Mapping) else None


def as_executed(provenance: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The provenance of a result: with the code that its ranks executed.

    Code may be edited after a run was prepared, while it waits in a queue, or between two attempts. A result of several
    codes (one made the partition, say, and another trained) is the result of none: it has no key, and no sweep takes it
    for its own.

    Args:
        provenance: of the run when it was prepared.
        codes: that ranks executed, in order (`gnnexp.record.attempts.codes_of`).
    """
    if not codes:
        return provenance
    code = as_known_today(codes[-1])
    others = [one for one in map(as_known_today, (provenance.get("code"), *codes[:-1])) if one != code]
    earlier = [one for place, one in enumerate(others) if one not in others[:place]]
    return {**provenance, "code": code, "earlier_code": earlier, "run_key": ""} if earlier else provenance
