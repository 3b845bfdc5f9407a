"""Arithmetic over recorded values: `([comm/rounds_frontier] + [comm/rounds_features]) / [config/model.layers]`.

A name in brackets is a metric of the epoch record, taken as its median over the epochs after the first. It can also be:

- `summary/<metric>`: at the best validation epoch, such as `summary/acc/test`.
- `last/<metric>`: of the last epoch that has the metric.
- `sum/<metric>`: the sum over all epochs.
- `epochs/<number>/<metric>`: of one epoch, counted from 1.
- `quality/<name>`: of the partition.
- `comparable`: 1 for a partition none of whose parts has more than twice its share. For other partitions it is not
  known, which leaves their runs out.
- `paradigm/<name>`: a fact that the paradigm decided before the first epoch.
- `graph/<name>`: the size of the data: `num_nodes`, `num_edges`, `num_features`.
- `config/<key>`: a number of the configuration, such as `config/model.layers`.
- `ranks`, `batches`: how many ranks train, how many batches an epoch has.
- `losses`: a checksum of the losses of all steps. It is equal if all losses are equal bit by bit.

The caller may define more names: `full` and `steps` (claims of papers), and `published/<quantity>`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import struct
import zlib
from collections.abc import Callable, Mapping

from gnnexp.errors import Problem
from gnnexp.record.runs import RecordedRun

_NAME = re.compile(r"\[([^\[\]]+)\]")
_OPERATORS: Mapping[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"max": max, "min": min}
# Not recorded if it is zero: the traffic of a purpose without messages, and the rows of a place that no row came from.
_ZERO_IF_ABSENT = ("comm/", "tier/", "work/features_loaded_")
# A partition is not compared if a part has more than this times the mean of vertices (in a vertex-cut also of edges).
_COLLAPSED = 2.0


def names_in(text: str) -> list[str]:
    """The names in brackets, in order."""
    return _NAME.findall(text)


def expression_problems(text: str, where: str) -> list[Problem]:
    """What is wrong with an expression, checked before there is a run."""
    try:
        _value(_parsed(text), dict.fromkeys(_placeholders(text), 1.0))
    except ZeroDivisionError:
        return []  # `1 / ([a] - [b])`: only the runs' values can show whether it divides by 0
    except (SyntaxError, ValueError, TypeError) as error:
        return [
            Problem(
                where,
                text,
                f"is no arithmetic over names in brackets: {error}",
                "[time/epoch_s], or ([a] + [b]) / [c]; + - * / max() min() and numbers",
            )
        ]
    return []


def evaluate(text: str, run: RecordedRun, known: Mapping[str, float] | None = None) -> float:
    """The value of an expression for `run`; NaN if `run` did not record it. `known` values override the run's."""
    found = {name: known[name] if known and name in known else measured(run, name) for name in names_in(text)}
    values = {place: found[name] for place, name in _placeholders(text).items()}
    try:
        return _value(_parsed(text), values)
    except ZeroDivisionError:
        return math.nan


def measured(run: RecordedRun, name: str) -> float:
    """The value of a name in brackets; NaN if `run` does not have it."""
    kind, _, rest = name.partition("/")
    hardware = run.config["hardware"]
    said: Mapping[str, Callable[[], object]] = {
        "ranks": lambda: int(hardware.get("nodes", 1)) * int(hardware["workers"]),
        "batches": lambda: run.median("comm/rounds_gradients"),
        "losses": lambda: _fingerprint(run),
        "summary": lambda: run.summary.get(rest),
        "quality": lambda: run.quality.get(rest),
        "comparable": lambda: 1 if run.quality and not _has_collapsed(run.quality) else None,
        "paradigm": lambda: run.facts.get(rest),
        "graph": lambda: run.provenance.get("graph", {}).get(rest),
        "config": lambda: run.value(rest),
        "last": lambda: next((epoch[rest] for epoch in reversed(run.epochs) if rest in epoch), None),
        "sum": lambda: sum(values) if (values := [epoch[rest] for epoch in run.epochs if rest in epoch]) else None,
        "epochs": lambda: _of_epoch(run, *rest.split("/", 1)),
    }
    if kind in said:
        return _number(said[kind]())
    value = run.median(name)
    return 0.0 if math.isnan(value) and name.startswith(_ZERO_IF_ABSENT) and run.epochs else value


def _of_epoch(run: RecordedRun, number: str, metric: str) -> float | None:
    return run.epochs[int(number) - 1].get(metric) if len(run.epochs) >= int(number) else None


def _fingerprint(run: RecordedRun) -> int:
    """A checksum of the losses of all steps. It has 32 bits, so a float holds it exactly."""
    losses = [loss for epoch in run.lines() for loss in epoch["losses"]]
    return zlib.crc32(struct.pack(f"<{len(losses)}d", *losses))


def _has_collapsed(quality: Mapping[str, float]) -> bool:
    """Whether a part is too large. In an edge-cut both replication factors are equal, and edges are not balanced."""
    cuts_vertices = quality["replication_cut"] != quality["replication_full"]
    names = ("balance_vertices", "balance_edges") if cuts_vertices else ("balance_vertices",)
    return any(quality.get(name, 1.0) > _COLLAPSED for name in names)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _placeholders(text: str) -> dict[str, str]:
    return {f"v{place}": name for place, name in enumerate(names_in(text))}


def _parsed(text: str) -> ast.expr:
    count = iter(range(len(text)))
    return ast.parse(_NAME.sub(lambda _: f"v{next(count)}", text).strip(), mode="eval").body


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    """The value of a tree of additions, products, calls of `_FUNCTIONS` and names; all other nodes are refused."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id](*(_value(part, values) for part in node.args))
    raise ValueError(f"{ast.unparse(node)} is neither a number, a name in brackets nor an operation")
