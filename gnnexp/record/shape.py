"""The shape of a record: types of all fields that reports, trackers and commands rely on.

Every record is checked when it is read, so no other code needs to check it. Fields that no code relies on may have any
value, and most fields may be missing: older versions recorded less.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gnnexp.components.schema import MOST_COUNTED, HardwareConfig, Links, TrainConfig
from gnnexp.components.signature import describe_annotation, fits, parameters_of_dataclass

STATUSES = ("finished", "failed")
_MOST = sys.float_info.max
_MOST_BYTES = 1 << 62
# A check of a value: it raises a `ValueError` that names the place of the value and what it must be.
Rule = Callable[[Any, str], None]


def check_job(job: object) -> None:
    """Check that a value has the shape of `job.json`.

    Raises:
        ValueError: a field is wrong; the message names it.
    """
    _JOB(job, "")


def check_result(result: object) -> None:
    """Check that a value has the shape of `result.json`. Of epochs only metrics are checked, see `check_line`.

    Raises:
        ValueError: a field is wrong; the message names it.
    """
    _RESULT(result, "")


def check_line(line: object, where: str) -> None:
    """Check that a value has the shape of a line of `epochs.jsonl`.

    Raises:
        ValueError: a field is wrong; the message names it.
    """
    _LINE(line, where)


def check_state(state: object) -> None:
    """Check that a value is the state of a sweep (`runs/sweeps/<name>.json`).

    Raises:
        ValueError: a field is wrong; the message names it.
    """
    _STATE(state, "")


# --- rules -----------------------------------------------------------------------------------------------------------
def _rule(holds: Callable[[Any], bool], what: str) -> Rule:
    def check(value: Any, where: str) -> None:  # noqa: ANN401  of any type
        if not holds(value):
            raise ValueError(f"{where or 'the record'} must be {what}")

    return check


def _none_or(rule: Rule) -> Rule:
    return lambda value, where: None if value is None else rule(value, where)


def _each(rule: Rule) -> Rule:
    """A rule for lists whose items all follow `rule`."""

    def check(value: Any, where: str) -> None:  # noqa: ANN401
        _LIST(value, where)
        for number, item in enumerate(value):
            rule(item, f"{where}[{number}]")

    return check


def _values(rule: Rule) -> Rule:
    """A rule for mappings whose values all follow `rule`."""

    def check(value: Any, where: str) -> None:  # noqa: ANN401
        _MAPPING(value, where)
        for name, item in value.items():
            rule(item, f"{where}.{name}")

    return check


def _fields(rules: Mapping[str, Rule], needed: Collection[str] = ()) -> Rule:
    """A rule for mappings whose fields follow `rules`; only `needed` fields must exist."""

    def check(value: Any, where: str) -> None:  # noqa: ANN401
        _MAPPING(value, where)
        for name, rule in rules.items():
            place = f"{where}.{name}" if where else name
            if name in value:
                rule(value[name], place)
            elif name in needed:
                raise ValueError(f"{place} must be there")

    return check


def _options(cls: type, more: Mapping[str, Rule]) -> Rule:
    """A rule for the fields of a dataclass. Fields may be missing, and others belong to another version."""
    return _fields({**{name: _hinted(one.hint) for name, one in parameters_of_dataclass(cls).items()}, **more})


def _hinted(hint: Any) -> Rule:  # noqa: ANN401  an annotation
    return _rule(
        lambda value: fits(value, hint) and (hint is str or not _is_too_large(value)), describe_annotation(hint)
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and not _is_too_large(value)


def _is_too_large(value: object) -> bool:
    """Whether a value is a whole number that is too large for a float."""
    return type(value) is int and not -_MOST <= value <= _MOST


def _are_numbers(values: Collection[object]) -> bool:
    types = set(map(type, values))
    return types <= {int, float} and (int not in types or not any(map(_is_too_large, values)))


def _count(least: int, what: str = "a count", most: int = MOST_COUNTED) -> Rule:
    return _rule(lambda value: type(value) is int and least <= value <= most, what)


_MAPPING, _LIST = (
    _rule(lambda value: isinstance(value, dict), "a mapping"),
    _rule(lambda value: isinstance(value, list), "a list"),
)
_TEXT, _NUMBER = _rule(lambda value: isinstance(value, str), "a text"), _rule(_is_number, "a number")
_NUMBERS = _rule(lambda value: isinstance(value, list) and _are_numbers(value), "numbers")
_NAMED_NUMBERS = _rule(lambda value: isinstance(value, dict) and _are_numbers(value.values()), "numbers by name")
_FROM_ONE = _count(1, "a count from 1 on")


def _texts(*names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, _none_or(_TEXT))


# --- records ---------------------------------------------------------------------------------------------------------
_LINKS = _rule(
    lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and value.keys() <= parameters_of_dataclass(Links).keys()
            and all(item is None or _is_number(item) for item in value.values())
        )
    ),
    describe_annotation(Links),
)
_CONFIG = _fields(
    {
        **dict.fromkeys(("partitioner", "sampler", "paradigm", "tracker"), _MAPPING),
        "dataset": _fields(
            {"scale": _none_or(_rule(lambda value: _is_number(value) and 0 < value < _MOST, "a positive number"))}
        ),
        "model": _fields(dict.fromkeys(("hidden", "layers"), _none_or(_FROM_ONE))),
        **dict.fromkeys(("feature_store", "task"), _fields({"dim": _none_or(_FROM_ONE)})),
        "train": _options(TrainConfig, {}),
        "hardware": _options(
            HardwareConfig,
            {
                **dict.fromkeys(("nodes", "workers"), _FROM_ONE),
                "links": _LINKS,
                "launcher": _fields(_texts("_target_")),
            },
        ),
        **_texts("name", "system"),
    },
    ("dataset", "model", "hardware", "train"),
)
_BY_NAME = _values(_none_or(_TEXT))
_PROVENANCE = _fields(
    {
        **_texts(
            "uid",
            "run_key",
            "date",
            "code_version",
            "reproduce",
            "cwd",
            "sweep",
            "sweep_uid",
            "label",
            "dataset_key",
            "partition",
        ),
        "choices": _BY_NAME,
        "libraries": _BY_NAME,
        "graph": _NAMED_NUMBERS,
        "chosen": _fields(_texts("device")),
        "hardware": _fields(
            {
                **_texts("host", "cpu", "system"),
                **dict.fromkeys(("cores", "threads", "ram_bytes"), _count(0, most=_MOST_BYTES)),
                "side_by_side": _fields({"num_cases": _FROM_ONE}),
                "gpus": _each(_TEXT),
            }
        ),
        "code": _none_or(_fields({"own": _values(_TEXT), **_texts("gnnexp")}, ("own",))),
        "result_version": _count(0),
    }
)
_JOB = _fields({"config": _CONFIG, "provenance": _PROVENANCE, "profile": _none_or(_MAPPING)}, ("config", "provenance"))
_ROWS = _rule(
    lambda rows: (
        isinstance(rows, dict)
        and _are_numbers(rows.values())
        and (not rows or {"original", "inter", "both"} <= rows.keys())
    ),
    "numbers named original, inter and both",
)
_FACTS = _fields(
    {
        "chunks": _count(0),
        **dict.fromkeys(("rows_initial", "rows_reorganised"), _none_or(_ROWS)),
        **dict.fromkeys(
            ("cost_initial", "cost_reorganised", "chunk_bytes_bound", "setup_s", "order_s"), _none_or(_NUMBER)
        ),
        "row_bytes": _none_or(_NUMBERS),
        "keeps": _none_or(_LIST),
    }
)
_OF_NODE = {**dict.fromkeys(("host", "cpu", "torch"), _TEXT), "cores": _count(0), "gpus": _each(_TEXT)}
_RESULT = _fields(
    {
        "config": _CONFIG,
        "provenance": _PROVENANCE,
        "epochs": _each(_fields({"metrics": _NAMED_NUMBERS}, ("metrics",))),
        "summary": _NAMED_NUMBERS,
        "status": _rule(lambda value: value in STATUSES, " or ".join(STATUSES)),
        **_texts("reason", "kind", "ended"),
        "quality": _none_or(_NAMED_NUMBERS),
        "paradigm": _none_or(_FACTS),
        "nodes": _none_or(_each(_fields({**_OF_NODE, "num_cases": _FROM_ONE}, _OF_NODE))),
        "attempts": _none_or(_each(_MAPPING)),
    },
    ("config", "provenance", "epochs", "summary", "status"),
)
_RANK = _fields(
    {
        "times": _fields(
            {"epoch_s": _NUMBER, **dict.fromkeys(("phases", "hidden", "crossings"), _NAMED_NUMBERS)}, ("phases",)
        ),
        "traffic": _values(_NAMED_NUMBERS),
        "work": _NAMED_NUMBERS,
        "memory": _NAMED_NUMBERS,
    },
    ("times", "traffic", "work"),
)
_LINE = _fields(
    {
        "epoch": _count(0),
        "time": _NUMBER,
        "metrics": _NAMED_NUMBERS,
        "losses": _NUMBERS,
        "ranks": _each(_RANK),
        "batches": _values(_each(_each(_NUMBERS))),
    },
    ("epoch", "metrics"),
)
_STATE = _fields(
    {
        **_texts("name", "description", "command"),
        "report": _MAPPING,
        "notes": _none_or(_each(_TEXT)),
        "cases": _each(
            _fields(
                {
                    **_texts("key", "dataset_key", "run_dir", "status", "reason", "kind"),
                    "label": _TEXT,
                    "seconds": _none_or(_NUMBER),
                    "attempts": _none_or(_each(_TEXT)),
                },
                ("label",),
            )
        ),
    },
    ("cases",),
)
