"""The key by which a run is recognised: runs with equal keys have equal results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.provenance.code import BASELINE, Code, as_known_today, still_changed
from gnnexp.provenance.older import as_first

# Keys that change neither a result nor its time.
_WITHOUT_RESULTS = {
    "hardware": {"launcher", "timeout_s", "max_restarts", "detach", "sampling", "latency", "flops_tf32", "l2",
                 "launch_s"},
    "train": {"checkpoint_every", "checkpoints_kept"},
}
_LINKS_WITHOUT_RESULTS = {"d2h", "duplex", "h2d_gather"}


def run_key(config: Mapping[str, Any], dataset_key: str, code: Code, inputs: Mapping[str, str] | None = None) -> str:
    """The key of a run, made of its configuration, data and code.

    The places of records and files are no part of it. Neither is the machine: a run of another machine is found, and
    its machine is named (`gnnexp.provenance.machine`).

    Args:
        config: resolved configuration.
        dataset_key: key of the data's content.
        code: code that the run executes (`code_of_config`).
        inputs: digests of files that components other than the dataset read, by config key.
    """
    config = as_first(config)
    content = {name: value for name, value in config.items() if name not in ("tracker", "name", "preflight")}
    for group, unimportant in _WITHOUT_RESULTS.items():
        content[group] = {key: value for key, value in config[group].items() if key not in unimportant}
    if links := content["hardware"].get("links"):
        content["hardware"]["links"] = {k: v for k, v in links.items() if k not in _LINKS_WITHOUT_RESULTS}
    content["dataset"] = {key: value for key, value in config["dataset"].items() if key != "path"}
    # Unchanged code adds nothing: runs made before code was a part of the key keep their keys.
    parts = [int(BASELINE), content, dataset_key, *([code.to_json()] if code else []),
             *([{"inputs": dict(inputs)}] if inputs else [])]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def recorded_key(config: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The key of a recorded run by what is known today; empty if no key was recorded.

    A change of gnnexp may be found to give the same results after a run was made with it.
    """
    key, code = str(provenance.get("run_key") or ""), provenance.get("code") or {}
    if not key or not code.get("changed"):
        return key
    known = Code(still_changed(code["changed"]), code["own"])
    return run_key(config, str(provenance.get("dataset_key")), known, recorded_inputs(provenance))


def recorded_inputs(provenance: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Digests of the files that a recorded run read in addition to its dataset (`run_key`); None if not recorded."""
    inputs = provenance.get("inputs")
    return {str(key): str(digest) for key, digest in inputs.items()} if isinstance(inputs, Mapping) else None


def as_executed(provenance: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The provenance of a result, with the code that its ranks executed.

    Code may be edited after a run was prepared, while the run waits in a queue, or between two attempts. A result of
    several codes (for example one made the partition, and another one trained) has no key, and no sweep uses it.

    Args:
        provenance: provenance of the run when it was prepared.
        codes: codes that ranks executed, in order (`gnnexp.record.attempts.codes_of`).
    """
    if not codes:
        return provenance
    code = as_known_today(codes[-1])
    others = [one for one in map(as_known_today, (provenance.get("code"), *codes[:-1])) if one != code]
    earlier = [one for place, one in enumerate(others) if one not in others[:place]]
    return {**provenance, "code": code, "earlier_code": earlier, "run_key": ""} if earlier else provenance
