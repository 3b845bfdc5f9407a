"""Members that classes of gnnexp had before 0.2.0. Nothing calls them now: those of a user's class would be ignored."""

from __future__ import annotations

from collections.abc import Mapping

_COMPUTED = "computed of its Ready"
_SHARES = "in a subclass of Shares"
_HELD = "held"
_TRAITS = "traits"
# Base class -> earlier member -> what there is instead (docs/howto/split.md).
REPLACED: Mapping[str, Mapping[str, str]] = {
    "gnnexp.paradigms.base.Paradigm": {
        "passes_float32": "refuses_rounded_rows",
        "samples_on_host": "refuses_gpu_sampling",
        "uncaptured": "refuses_capture",
    },
    "gnnexp.paradigms.trainer.Trainer": {"state_dict": "own_state", "load_state_dict": "own_state"},
    "gnnexp.paradigms.loops.global_batch.GlobalBatchTrainer": {
        "count_computed": _COMPUTED,
        "count_layers": _COMPUTED,
        "cross_edges": _COMPUTED,
    },
    "gnnexp.paradigms.loops.mini_batch.MiniBatchTrainer": {
        "targets_of": _SHARES,
        "rank_batch": _SHARES,
        "drawing_unit": _SHARES,
    },
    "gnnexp.paradigms.loops.full_graph.FullGraphTrainer": {
        "own": _HELD,
        "blocks": _HELD,
        "resident": _HELD,
        "redundant_edges": _HELD,
    },
    "gnnexp.models.layer.Layer": {
        "kind": _TRAITS,
        "attend": _TRAITS,
        "attention": _TRAITS,
        "input_weights": _TRAITS,
        "mixed_and_biased": _TRAITS,
    },
}


def replaced_members(kind: type) -> list[str]:
    """Members of REPLACED that a class, or one above it outside of gnnexp, defines: `Mine.state_dict (own_state)`."""
    above = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
    today = {name: new for base in above for name, new in REPLACED.get(base, {}).items()}
    return [
        f"{own.__qualname__}.{name} ({today[name]})"
        for own in kind.__mro__
        if own.__module__.partition(".")[0] != "gnnexp"
        for name in vars(own)
        if name in today
    ]
