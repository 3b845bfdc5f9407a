"""Which system takes which task, features and models: asked of `check` itself, and written to docs/support.md.

`PYTHONPATH=tests/support python tests/support/support_matrix.py` writes the page anew.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from nasty_graphs import nasty_graph

from gnnexp.cli.prepare import problems_of
from gnnexp.config.check import check_data
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
SYSTEMS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "system").glob("*.yaml"))
MODELS = ("gcn", "sage", "gat", "gin", "rgcn", "sage_pool")
TASKS = {"vertices": "node_classification", "links": "link_prediction"}
ROWS = ("features", "trained rows")
HEAD = """# Systems, tasks and models

What `gnnexp run system=… task=… model=…` takes; made by `tests/support/support_matrix.py` from what `check` says of every combination, and compared with it by the tests.
*Trained rows* are `feature_store=embedding` (`embedding_sliced` for `p3`). **all** is every model: {models}. A number is why the others are refused, with what mends it.
"""


def page() -> str:
    """The page's text."""
    reasons: list[str] = []
    columns = [(task, rows) for task in TASKS for rows in ROWS]
    lines = ["| system | " + " | ".join(f"{task}, {rows}" for task, rows in columns) + " |", "|---" * 5 + "|"]
    for system in SYSTEMS:
        cells = [_cell(system, task, rows, reasons) for task, rows in columns]
        lines.append(f"| `{system}` | " + " | ".join(cells) + " |")
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    head = HEAD.format(models=", ".join(f"`{model}`" for model in MODELS))
    return "\n".join([head, *lines, "", *notes, ""])


def refusals(system: str, task: str, rows: str, model: str) -> list[Problem]:
    """What is wrong with a combination."""
    overrides = [f"system={system}", f"task={TASKS[task]}", f"model={model}", "hardware.workers=2", "dataset=rmat",
                 "dataset.relations=6", "train.batch_size=null" if "full" in system else "tracker=none"]
    if rows == "trained rows":
        overrides.append("feature_store=" + ("embedding_sliced" if system == "p3" else "embedding"))
    if system == "dgl_full_graph":
        overrides.append("hardware.workers=1")
    if system == "neutrontp_naive" or system.startswith("neutrontp"):
        overrides.append("model.hidden=16")
    try:
        config = compose(overrides).config
        return [*problems_of(config), *check_data(config, linked())]
    except ConfigError as error:
        return list(error.problems)


def linked() -> Graph:
    """Small, typed, with features, labels and links."""
    graph = nasty_graph(num_features=64, num_classes=8, typed=True)
    assert graph.edge_types is not None
    import torch

    edges = torch.stack([graph.indices.long(), graph.edge_types.long(), graph.destinations().long()], 1)
    return replace(graph, links={"train": edges[10:], "valid": edges[:5], "test": edges[5:10]})


def _cell(system: str, task: str, rows: str, reasons: list[str]) -> str:
    taken, numbers = [], set()
    for model in MODELS:
        found = refusals(system, task, rows, model)
        if not found:
            taken.append(model)
        for problem in found:
            reason = f"`{problem.key}`: {_plain(problem.allowed)}. {_plain(problem.mend)}."
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
