"""The graph and the configuration of a case, and of what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from experiments import check_config, data_problems, experiment_in, planned
from small_graphs import sparse_rows

from gnnexp.config.compose import compose
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.partitioners.base import Partitioner
from gnnexp.testing.exactness import cut_parts, parts
from gnnexp.testing.graphs import nasty_graph, weighted_graph
from gnnexp.testing.steps import optimizer
from gnnexp.testing.ways import FULL, MINI_BATCH, PROFILE, SLICED, SLICED_STORE, WAYS
from matrix.axes import AXES, Case, named

FUSED = {"_target_": "gnnexp.samplers.fused.FusedOptions", "fanouts": [4, 3], "key": "global"}
LOCAL = {"_target_": "gnnexp.feature_stores.local.LocalOptions"}
TWIN = {"_target_": "full_graph.SerialTwin"}
PARTS = 4  # of who averages models of parts: whichever rank trains them, the average is the same
TARGETS = {"vertices": 30, "links": 40}
BATCHES = {"whole": None, "several": 8, "tiny": 2}
EPOCHS = {"whole": 5, "several": 2, "tiny": 2}


# --- graphs ----------------------------------------------------------------------------------------------------------
def graph_of(case: Case) -> Graph:
    """`nasty_graph` with features that are mostly zero, edge weights or none, and some of its edges as links."""
    chosen = named(case)
    return _graph(chosen["model"] == "rgcn", chosen["rows"], chosen["edges"] == "weighted")


@cache
def _graph(typed: bool, rows: str, weighted: bool) -> Graph:
    graph = nasty_graph(typed=typed)
    if weighted:
        graph = replace(graph, edge_weights=weighted_graph().edge_weights)
    assert isinstance(graph.features, torch.Tensor)
    kept = torch.where(graph.features > 0.5, graph.features, torch.zeros(()))
    kept[::7] = 0
    features = {"dense": kept, "sparse": sparse_rows(kept), "trained": None}[rows]
    kinds = [] if graph.edge_types is None else [graph.edge_types.long()]
    links = torch.stack([graph.indices.long(), *kinds, graph.destinations().long()], 1)[::5]
    last = TARGETS["links"]
    return replace(
        graph,
        features=features,
        links={"train": links[:last], "valid": links[last : last + 9], "test": links[last + 9 : last + 18]},
    )


def partition_of(case: Case) -> Partition | None:
    """Who owns what, where the way wants to know."""
    chosen, graph = named(case), graph_of(case)
    config = config_of(case)
    experiment = experiment_in(config)
    paradigm = experiment.paradigm
    if not paradigm.wants_partition(experiment):
        return None
    size = PARTS if planned(experiment, graph).works_on_parts else int(chosen["ranks"])
    cut = paradigm.takes_vertex_cut and build(config["partitioner"], Partitioner).vertex_cut
    kind = chosen["parts"]
    found = (cut_parts if cut else parts)(graph, size, "random" if kind == "idle" else kind)
    if kind != "idle":
        return found
    owner = found.node_owner.clone()
    owner[graph.splits.train if chosen["task"] == "vertices" else graph.links["train"][:, 0]] = 0
    return replace(found, node_owner=owner)


# --- configurations --------------------------------------------------------------------------------------------------
@cache
def _composed(*overrides: str) -> dict[str, Any]:
    return compose([*overrides, "dataset=digits", "tracker=none"]).config


def config_of(case: Case) -> dict[str, Any]:
    """The resolved configuration: of two small layers with dropout of both kinds, in float64, and plain steps.

    Plain steps (SGD), because Adam divides by gradients: it makes much of the error of those that are 0.
    """
    chosen = named(case)
    way, is_link, batches = chosen["way"], chosen["task"] == "links", chosen["batches"]
    config = _composed(way if "=" in way else "system=dgl")
    model = _composed("system=dgl", f"model={chosen['model']}")["model"]
    task = _composed("system=dgl", "task=link_prediction" if is_link else "task=node_classification")["task"]
    train = {
        "epochs": EPOCHS[batches],
        "batch_size": BATCHES[batches],
        "batch_of": "run",
        "dtype": "float64",
        "overlap": chosen["overlap"] == "on",
        "eval_every": 1,
    }
    hardware = {**PROFILE, "workers": int(chosen["ranks"]), "device": chosen["device"], "threads": 1}
    config = {
        **config,
        "task": task,
        "optimizer": optimizer("SGD", lr=_rate(chosen)),
        "train": {**config["train"], **train},
        "hardware": {**config["hardware"], **hardware},
        "model": {**model, "hidden": 16, "layers": 2, "dropout": 0.5, "input_dropout": 0.2, "kernel": chosen["kernel"]},
    }
    if chosen["model"] == "gat":
        config["model"] |= {"heads": 2, "attention_dropout": 0.3}
    config = _in_way(config, way)
    if chosen["rows"] == "trained":
        sliced = "Sliced" if "Sliced" in config["feature_store"]["_target_"] else ""
        target = f"gnnexp.feature_stores.embedding.{sliced}EmbeddingOptions"
        config["feature_store"] = {"_target_": target, "dim": 9}
    return config


def _rate(chosen: Mapping[str, str]) -> float:
    """Sums of neighbours that nothing divides grow from layer to layer, and scores of links are their products."""
    return 1e-8 if (chosen["model"], chosen["task"]) == ("gin", "links") else 1e-3


def _in_way(config: dict[str, Any], way: str) -> dict[str, Any]:
    """With the way's own paradigm, store and sampler; two hops, and draws that do not depend on ranks."""
    sampler = dict(config["sampler"])
    if way in WAYS:
        paradigm, place = WAYS[way]
        config = {**config, "paradigm": paradigm, "feature_store": SLICED_STORE if way in SLICED else LOCAL}
        if place == "edges":
            config["partitioner"] = {"_target_": "gnnexp.partitioners.dbh.DbhPartitioner"}
        sampler = dict(FUSED) if way in MINI_BATCH else dict(FULL)
    if "fanouts" in sampler:
        sampler["fanouts"] = FUSED["fanouts"]
    if "Fused" in sampler["_target_"]:
        sampler["key"] = "global"
    return {**config, "sampler": sampler}


def reference_of(case: Case) -> tuple[Case, dict[str, Any] | None]:
    """What a case is compared with: a case, and its configuration if that is another than the case's own.

    A way that is exact is compared with one worker that has everything, dense, on CPU, without a stop. Any other way
    is compared with itself, so; who averages models of parts, with one rank that trains all of them.
    """
    chosen, config = named(case), config_of(case)
    plan = planned(experiment_in(config), graph_of(case))
    plain = {
        "rows": "trained" if chosen["rows"] == "trained" else "dense",
        "stopped": "never",
        "kernel": "auto",
        "overlap": "off",
        "device": "cpu",
    }
    decoupled = config["paradigm"].get("mode") == "decoupled"
    alone = plan.is_exact or decoupled
    if alone and "dgl" not in config["sampler"]["_target_"].lower():
        plain |= {"ranks": "1", "parts": "random"}
        same = _case({**chosen, **plain})
        return same, _serial(config_of(same), TWIN if decoupled else _composed("system=dgl")["paradigm"])
    return _case({**chosen, **plain, **({"ranks": "1"} if plan.works_on_parts else {})}), None


def _case(chosen: Mapping[str, str]) -> Case:
    return tuple(chosen[axis] for axis in AXES)


def _serial(config: Mapping[str, Any], paradigm: Mapping[str, Any]) -> dict[str, Any]:
    store = config["feature_store"]
    trained = {**store, "_target_": store["_target_"].replace("Sliced", "")}
    store = trained if "Embedding" in store["_target_"] else LOCAL
    return {
        **config,
        "paradigm": dict(paradigm),
        "feature_store": store,
        "sampler": {**config["sampler"], "topology": "replicated"},
    }


# --- checks ----------------------------------------------------------------------------------------------------------
_FREE = ("parts", "stopped", "overlap")  # no check asks for them


def refusal(case: Case) -> str:
    """Why such a run is refused before it starts, empty if it is not."""
    chosen = named(case)
    plain = _case({**chosen, **{axis: AXES[axis][0] for axis in _FREE}})
    if found := _refused(plain):
        return found
    if chosen["parts"] != "random" and partition_of(plain) is None:
        return "this way has no parts"
    return ""


@cache
def _refused(case: Case) -> str:
    config = config_of(case)
    problems = check_config(config) or data_problems(config, graph_of(case))
    return f"{problems[0].key}: {problems[0].allowed}" if problems else ""
