"""Which system takes which task, features and models: asked of `check` itself, and written to docs/support.md.

`PYTHONPATH=tests/support python tests/support/support_matrix.py` writes the page again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from experiments import data_problems

from gnnexp.cli.running.prepare import config_problems
from gnnexp.config.compose import compose
from gnnexp.errors import Problem
from gnnexp.experiment.build import read
from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
SYSTEMS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "system").glob("*.yaml"))
MODELS = ("gcn", "sage", "gat", "gin", "rgcn", "mlp", "sage_pool", "pyg")
TASKS = {"vertices": "node_classification", "links": "link_prediction"}
ROWS = ("features", "trained rows")
HEAD = """# Systems, tasks and models

The table shows which combinations `gnnexp run system=… task=… model=…` takes. `tests/support/support_matrix.py` asks
`check` about every combination and writes this page. A test compares the page with `check`.

- *Trained rows* are `feature_store=embedding` (`embedding_sliced` for `p3` and `p3_pipelined`).
- **all** means every model: {models}.
- A number refers to the list below: why other models are refused, and the fix.
"""


def page() -> str:
    """The page's text."""
    reasons: list[str] = []
    columns = [(task, rows) for task in TASKS for rows in ROWS]
    lines = ["| system | " + " | ".join(f"{task}, {rows}" for task, rows in columns) + " |", "|---" * 5 + "|"]
    graph = linked()
    for system in SYSTEMS:
        found: dict[tuple[str, str], dict[str, list[Problem]]] = {column: {} for column in columns}
        for task, rows, model, config in combined(system):
            found[task, rows][model] = refusals(config, graph)
        lines.append(f"| `{system}` | " + " | ".join(_cell(found[column], reasons) for column in columns) + " |")
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    head = HEAD.format(models=", ".join(f"`{model}`" for model in MODELS))
    return "\n".join([head, *lines, "", *notes, ""])


def refusals(config: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """What is wrong with a combination."""
    return config_problems(read(config)) or data_problems(config, graph)


def combined(system: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """`(task, rows, model, config)`: the system's own, with the groups of others in it."""
    config = compose([f"system={system}", "dataset=digits", "tracker=none"]).config
    config = {**config, "hardware": {**config["hardware"], "workers": 1 if system == "dgl_full_graph" else 2}}
    for (task, choice), rows, model in product(TASKS.items(), ROWS, MODELS):
        store = config["feature_store"]
        if rows == "trained rows":
            store = _group("feature_store", "embedding_sliced" if system in ("p3", "p3_pipelined") else "embedding")
        parts = {"task": _group("task", choice), "feature_store": store, "model": _group("model", model)}
        yield task, rows, model, {**config, **parts}


def linked() -> Graph:
    """Small, typed, with features, labels and links."""
    graph = nasty_graph(num_features=256, num_classes=8, typed=True)
    assert graph.edge_types is not None
    edges = torch.stack([graph.indices.long(), graph.edge_types.long(), graph.destinations().long()], 1)
    return replace(graph, links={"train": edges[10:], "valid": edges[:5], "test": edges[5:10]})


@cache
def _group(name: str, choice: str) -> dict[str, Any]:
    node: dict[str, Any] = compose([f"{name}={choice}", "dataset=digits"]).config[name]
    return node


def _cell(of_models: Mapping[str, Sequence[Problem]], reasons: list[str]) -> str:
    taken, numbers = [model for model, problems in of_models.items() if not problems], set()
    for problem in chain(*of_models.values()):
        reason = f"`{problem.key}`: {_plain(problem.allowed)}. {_plain(problem.fix)}."
        if reason not in reasons:
            reasons.append(reason)
        numbers.add(reasons.index(reason) + 1)
    names = "**all**" if len(taken) == len(MODELS) else ", ".join(taken) or "—"
    return names + (f" ({', '.join(map(str, sorted(numbers)))})" if numbers else "")


def _plain(text: str) -> str:
    """Without what differs from graph to graph."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
