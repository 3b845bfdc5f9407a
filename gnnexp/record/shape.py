"""The shape of a record: types of every field that reports, trackers and commands rely on.

A record that was read has this shape, so that nobody else has to ask. Fields that nobody relies on may be anything, and
most may be missing: older versions recorded less.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.experiment.schema import MOST_COUNTED, HardwareConfig, Links, Straggler, TrainConfig
from gnnexp.experiment.signature import describe, fits, parameters_of_dataclass

STATUSES = ("finished", "failed")
_GROUPS = ("dataset", "partitioner", "sampler", "feature_store", "model", "task", "paradigm", "tracker", "train",
           "hardware")
_NUMBERS = {int, float}
_MOST = sys.float_info.max
_COUNTS = (("model", "hidden"), ("model", "layers"), ("feature_store", "dim"), ("task", "dim"), ("hardware", "nodes"),
           ("hardware", "workers"))
_TEXTS = ("uid", "run_key", "date", "code_version", "reproduce", "cwd", "sweep", "dataset_key", "partition")
_STATE_TEXTS = ("name", "description", "command")
_CASE_TEXTS = ("label", "key", "dataset_key", "run_dir", "status", "reason")


def check_job(job: object) -> None:
    """Whether `job.json` is one.

    Raises:
        ValueError: it says which field is not what it should be.
    """
    found = _mapping(job, "the record")
    _check_config(found.get("config"))
    _check_provenance(found.get("provenance"))
    if found.get("profile") is not None:
        _mapping(found["profile"], "profile")


def check_result(result: object) -> None:
    """Whether `result.json` is one; of its epochs the metrics are looked at (`check_line` looks at the rest).

    Raises:
        ValueError: it says which field is not what it should be.
    """
    found = _mapping(result, "the record")
    _check_config(found.get("config"))
    _check_provenance(found.get("provenance"))
    for number, line in enumerate(_sequence(found.get("epochs"), "epochs")):
        _numbers(_mapping(line, f"epochs[{number}]").get("metrics"), f"epochs[{number}].metrics")
    _numbers(found.get("summary"), "summary")
    if found.get("status") not in STATUSES:
        raise _wrong("status", " or ".join(STATUSES))
    _texts(found, ("reason", "kind"), "")
    _numbers(found.get("quality") or {}, "quality")
    _check_facts(_mapping(found.get("paradigm") or {}, "paradigm"))
    for number, node in enumerate(_sequence(found.get("nodes") or [], "nodes")):
        _check_node(node, f"nodes[{number}]")
    for number, event in enumerate(_sequence(found.get("attempts") or [], "attempts")):
        _mapping(event, f"attempts[{number}]")


def check_line(line: object, where: str) -> None:
    """Whether a line of `epochs.jsonl` is one.

    Raises:
        ValueError: it says which field is not what it should be.
    """
    found = _mapping(line, where)
    if not _is_count(found.get("epoch"), 0):
        raise _wrong(f"{where}.epoch", "a count")
    if not _is_number(found.get("time", 0.0)):
        raise _wrong(f"{where}.time", "a number")
    _numbers(found.get("metrics"), f"{where}.metrics")
    _all_numbers(found.get("losses", []), f"{where}.losses")
    for rank in _sequence(found.get("ranks", []), f"{where}.ranks"):
        _check_rank(rank, f"{where}.ranks")
    for counts in _mapping(found.get("batches", {}), f"{where}.batches").values():
        for batch in _sequence(counts, f"{where}.batches"):
            for layer in _sequence(batch, f"{where}.batches"):
                _all_numbers(layer, f"{where}.batches")


def check_state(state: object) -> None:
    """Whether `runs/sweeps/<name>.json` is the state of a sweep.

    Raises:
        ValueError: it says which field is not what it should be.
    """
    found = _mapping(state, "the state")
    _texts(found, _STATE_TEXTS, "")
    for number, case in enumerate(_sequence(found.get("cases"), "cases")):
        where = f"cases[{number}]"
        if not isinstance(_mapping(case, where).get("label"), str):
            raise _wrong(f"{where}.label", "a text")
        _texts(case, _CASE_TEXTS, f"{where}.")


# --- parts of records ------------------------------------------------------------------------------------------------
def _check_config(config: object) -> None:
    found = _mapping(config, "config")
    for group in _GROUPS:
        _part(found, group, "config.")
    for group in ("dataset", "model", "hardware", "train"):
        if group not in found:
            raise _wrong(f"config.{group}", "there")
    for group, name in _COUNTS:
        value = found.get(group, {}).get(name)
        if value is not None and not _is_count(value, 1):
            raise _wrong(f"config.{group}.{name}", "a count from 1 on")
    scale = found["dataset"].get("scale")
    if scale is not None and not (_is_number(scale) and 0 < scale < _MOST):
        raise _wrong("config.dataset.scale", "a positive number")
    _fields(found["train"], TrainConfig, "config.train")
    _fields(found["hardware"], HardwareConfig, "config.hardware")
    _texts(_part(found["hardware"], "launcher", "config.hardware."), ("_target_",), "config.hardware.launcher.")
    _texts(found, ("name", "system"), "config.")


def _fields(node: object, cls: type, where: str) -> None:
    """Those fields of a dataclass that are there; others are of another version."""
    found = _mapping(node, where)
    for name, parameter in parameters_of_dataclass(cls).items():
        if name not in found:
            continue
        if name in ("straggler", "links"):
            if found[name] is not None:
                _whole(found[name], Links if name == "links" else Straggler, f"{where}.{name}")
        elif not fits(found[name], parameter.hint) or (parameter.hint is not str and _is_too_large(found[name])):
            raise _wrong(f"{where}.{name}", describe(parameter.hint))


def _whole(node: object, cls: type, where: str) -> None:
    """A mapping that becomes a dataclass as it is."""
    found = _mapping(node, where)
    allowed = parameters_of_dataclass(cls)
    if not found.keys() <= allowed.keys() or any(one.required and name not in found for name, one in allowed.items()):
        raise _wrong(where, describe(cls))
    _fields(found, cls, where)


def _check_provenance(provenance: object) -> None:
    found = _mapping(provenance, "provenance")
    _texts(found, _TEXTS, "provenance.")
    for name in ("choices", "libraries"):
        part = _part(found, name, "provenance.")
        _texts(part, tuple(part), f"provenance.{name}.")
    _numbers(_part(found, "graph", "provenance."), "provenance.graph")
    _texts(_part(found, "chosen", "provenance."), ("device",), "provenance.chosen.")
    hardware = _part(found, "hardware", "provenance.")
    _texts(hardware, ("host", "cpu", "system"), "provenance.hardware.")
    for name in ("cores", "threads", "ram_bytes"):
        if not _is_count(hardware.get(name, 0), 0, 1 << 62):
            raise _wrong(f"provenance.hardware.{name}", "a count")
    _all_texts(hardware.get("gpus", []), "provenance.hardware.gpus")
    if found.get("code") is not None:
        for name in ("changed", "own"):
            part = _mapping(_mapping(found["code"], "provenance.code").get(name), f"provenance.code.{name}")
            _all_texts(list(part.values()), f"provenance.code.{name}")


def _check_facts(facts: Mapping[str, Any]) -> None:
    """What reports of offloaded training read of a plan (`gnnexp.reports.offload.chunk_plan`)."""
    if "chunks" in facts and not _is_count(facts["chunks"], 0):
        raise _wrong("paradigm.chunks", "a count")
    for name in ("rows_initial", "rows_reorganised"):
        rows = _numbers(facts.get(name) or {}, f"paradigm.{name}")
        if rows and not {"original", "inter", "both"} <= rows.keys():
            raise _wrong(f"paradigm.{name}", "a mapping of original, inter and both")
    for name in ("cost_initial", "cost_reorganised", "chunk_bytes_bound", "setup_s", "order_s"):
        if facts.get(name) is not None and not _is_number(facts[name]):
            raise _wrong(f"paradigm.{name}", "a number")
    _all_numbers(facts.get("row_bytes") or [], "paradigm.row_bytes")
    _sequence(facts.get("keeps") or [], "paradigm.keeps")


def _check_node(node: object, where: str) -> None:
    """See `gnnexp.provenance.machine.read_node`."""
    found = _mapping(node, where)
    for name in ("host", "cpu", "torch"):
        if not isinstance(found.get(name), str):
            raise _wrong(f"{where}.{name}", "a text")
    if not _is_count(found.get("cores"), 0):
        raise _wrong(f"{where}.cores", "a count")
    _all_texts(found.get("gpus"), f"{where}.gpus")


def _check_rank(rank: object, where: str) -> None:
    found = _mapping(rank, where)
    times = _mapping(found.get("times"), f"{where}.times")
    for name in ("phases", "hidden", "crossings"):
        _numbers(times.get(name, {}), f"{where}.times.{name}")
    if not _is_number(times.get("epoch_s", 0.0)) or "phases" not in times:
        raise _wrong(f"{where}.times", "times of phases and of the epoch")
    for traffic in _mapping(found.get("traffic"), f"{where}.traffic").values():
        _numbers(traffic, f"{where}.traffic")
    _numbers(found.get("work"), f"{where}.work")
    _numbers(_part(found, "memory", f"{where}."), f"{where}.memory")


# --- kinds of values -------------------------------------------------------------------------------------------------
def _wrong(where: str, what: str) -> ValueError:
    return ValueError(f"{where} must be {what}")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, "a mapping")
    return value


def _part(node: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A mapping inside of another one; empty where it is not there, which null does not say."""
    return _mapping(node.get(name, {}), f"{where}{name}")


def _sequence(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "a list")
    return value


def _numbers(value: object, where: str) -> Mapping[str, float]:
    found = _mapping(value, where)
    _all_numbers(list(found.values()), where)
    return found


def _all_numbers(value: object, where: str) -> None:
    """A list of numbers that fit a float; NaN and infinity are numbers."""
    found = _sequence(value, where)
    types = set(map(type, found))
    if not types <= _NUMBERS or (int in types and any(map(_is_too_large, found))):
        raise _wrong(where, "numbers")


def _all_texts(value: object, where: str) -> None:
    if not all(isinstance(item, str) for item in _sequence(value, where)):
        raise _wrong(where, "texts")


def _texts(node: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """Those that are there."""
    for name in names:
        if node.get(name) is not None and not isinstance(node[name], str):
            raise _wrong(f"{where}{name}", "a text")


def _is_number(value: object) -> bool:
    return type(value) in _NUMBERS and not _is_too_large(value)


def _is_too_large(value: object) -> bool:
    return type(value) is int and not -_MOST <= value <= _MOST


def _is_count(value: object, least: int, most: int = MOST_COUNTED) -> bool:
    return type(value) is int and least <= value <= most
