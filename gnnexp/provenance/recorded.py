"""What a recorded run was made of: its key, its code, and the files that it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Raised when every configuration may give other results or counts. If only some components do, their `version` is
# raised instead (CONTRIBUTING.md). Runs of another version are never taken as finished.
RESULT_VERSION = 3


def recorded_key(provenance: Mapping[str, Any]) -> str:
    """The key of a recorded run; empty if it was not recorded, or belongs to another `RESULT_VERSION`."""
    return "" if is_of_other_version(provenance) else str(provenance.get("run_key") or "")


def is_of_other_version(provenance: Mapping[str, Any]) -> bool:
    """Whether a run was made when the same configuration could have other results."""
    return provenance.get("result_version") != RESULT_VERSION


def version_in_words(provenance: Mapping[str, Any]) -> str:
    """The release of gnnexp that made a run: `gnnexp 0.1.0`."""
    return f"gnnexp {str(provenance.get('code_version') or '0.1.0').partition('+')[0]}"


def recorded_inputs(provenance: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Digests of the files that a recorded run read in addition to its dataset; None if not recorded."""
    inputs = provenance.get("inputs")
    return {str(key): str(digest) for key, digest in inputs.items()} if isinstance(inputs, Mapping) else None


def own_of(code: Mapping[str, Any] | None) -> dict[str, str]:
    """The user's modules in recorded code (`Code.to_json`), with their digests."""
    return dict((code or {}).get("own") or {})


def as_executed(provenance: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The provenance of a result, with the code that its ranks executed.

    Code may be edited after a run was prepared, while the run waits in a queue, or between two attempts. A result of
    several codes of the user (for example one made the partition, and another one trained) has no key, and no sweep
    uses it. Several codes of gnnexp are only named: they give the same results, or a version would have been raised.

    Args:
        provenance: provenance of the run when it was prepared.
        codes: codes that ranks executed, in order (`gnnexp.record.attempts.codes_of`).
    """
    if not codes:
        return provenance
    code = dict(codes[-1])
    prepared = provenance.get("code") or {}
    others = [dict(other) for other in (prepared, *codes[:-1]) if _differs(other, code)]
    earlier = [other for place, other in enumerate(others) if other not in others[:place]]
    if not earlier:
        return {**provenance, "code": code}
    key = provenance.get("run_key", "") if all(own_of(other) == own_of(code) for other in earlier) else ""
    return {**provenance, "code": code, "earlier_code": earlier, "run_key": key}


def _differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two codes differ. The digest of gnnexp is not known before ranks start."""
    return own_of(one) != own_of(other) or (bool(one.get("gnnexp")) and one.get("gnnexp") != other.get("gnnexp"))
