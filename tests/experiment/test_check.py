"""A whole configuration: ranges, conflicts between groups, and what only the data shows."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments import check_config, data_problems
from sparse_graphs import mostly_zero

from gnnexp.components.facts import GraphFacts
from gnnexp.config.compose import compose
from gnnexp.errors import Problem
from gnnexp.experiment.build import experiment_of, read
from gnnexp.experiment.check import split_notes, unseen_note, validation_note
from gnnexp.graph.graph import Graph, Splits
from gnnexp.testing.graphs import nasty_graph


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    return compose(["tracker=none"]).config


def changed(config: dict[str, Any], **values: Any) -> dict[str, Any]:
    """`config` with `a__b=value` put at `a.b`."""
    result = copy.deepcopy(config)
    for path, value in values.items():
        *parents, last = path.split("__")
        node = result
        for part in parents:
            node = node[part]
        node[last] = value
    return result


def keys(problems: list[Any]) -> list[str]:
    return sorted(problem.key for problem in problems)


def test_the_default_is_right(default: dict[str, Any]) -> None:
    assert check_config(default) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train__epochs", 0),
        ("train__epochs", "many"),
        ("train__batch_size", 0),
        ("optimizer__lr", "x"),
        ("optimizer__lr", float("inf")),
        ("optimizer__lr", float("nan")),
        ("optimizer__weight_decay", -1),
        ("train__eval_every", -1),
        ("train__clip_norm", 0),
        ("train__patience", 0),
        ("train__steps_per_epoch", 0),
        ("train__stop_below", [None, math.inf]),
        ("train__stop_below", 0.5),
        ("optimizer___partial_", False),
        ("optimizer__unknown", 1),
        ("scheduler", {}),
        ("train__overlap", 1),
        ("train__unknown", 1),
        ("train__dtype", "float16"),
        ("train__matmul", "float16"),
        ("train__activations", "tf32"),
        ("hardware__workers", 0),
        ("hardware__workers", True),
        ("hardware__threads", -1),
        ("hardware__timeout_s", 0),
        ("hardware__nodes", 2),
        ("hardware__device", "gpu"),
        ("hardware__latency", -1),
        ("hardware__flops", 0),
        ("hardware__links__network", -1),
        ("hardware__links__h2d", float("nan")),
        ("hardware__links", 5),
        ("hardware__threads", 10**20),
        ("hardware__timeout_s", 1e300),
        ("model__hidden", 10**20),
        ("seed", -1),
        ("seed", "x"),
        ("name", "a/b"),
        ("model__hidden", "wide"),
        ("model__hiden", 3),
        ("modle", {}),
        ("sampler", None),
        ("hardware__launcher", {"_target_": "gnnexp.launchers.local.NoLauncher"}),
    ],
)
def test_one_wrong_value_is_one_problem_with_its_key(default: dict[str, Any], path: str, value: Any) -> None:
    problems = check_config(changed(default, **{path: value}))
    assert len(problems) == 1, problems
    assert problems[0].key.startswith(path.replace("__", ".").partition("=")[0])
    assert problems[0].fix and problems[0].allowed


def test_tf32_needs_a_build_of_torch_for_gpus(default: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for build, wrong in ((None, ["train.matmul"]), ("13.0", [])):  # a rank without a GPU refuses it then
        monkeypatch.setattr(torch.version, "cuda", build)
        assert keys(check_config(changed(default, train__matmul="tf32"))) == wrong


def test_every_range_is_reported_at_once(default: dict[str, Any]) -> None:
    wrong = changed(default, train__epochs=0, optimizer__lr=-1.0, hardware__workers=0)
    assert set(keys(check_config(wrong))) >= {"train.epochs", "optimizer.lr", "hardware.workers"}


def test_one_fanout_per_layer(default: dict[str, Any]) -> None:
    wrong = changed(default, model__layers=3, sampler__fanouts=[5, 5])
    (problem,) = check_config(wrong)
    assert problem.key == "sampler.fanouts"
    assert "sampler.fanouts=[5,5,5]" in problem.fix and "model.layers=2" in problem.fix


@pytest.mark.parametrize("layers", [10_001, 10**9, 10**20])
def test_a_number_of_layers_that_no_model_has_is_refused_in_few_words(default: dict[str, Any], layers: int) -> None:
    problems = check_config(changed(default, model__layers=layers, sampler__fanouts=[5, 5]))
    assert keys(problems) == ["model.layers", "sampler.fanouts"]
    assert all(len(str(problem)) < 300 for problem in problems)


def test_what_a_constructor_refuses_is_named_with_its_group(default: dict[str, Any]) -> None:
    paradigm = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel", "staleness": -1}
    assert keys(check_config(changed(default, paradigm=paradigm))) == ["paradigm.staleness"]


def graph(num_train: int) -> Graph:
    ids = torch.arange(6)
    return Graph(
        indptr=torch.arange(7),
        indices=ids.to(torch.int32),
        features=torch.ones(6, 2),
        labels=ids % 2,
        num_classes=2,
        splits=Splits(ids[:num_train], ids[4:5], ids[5:]),
        name="six",
    )


def test_more_ranks_than_training_vertices(default: dict[str, Any]) -> None:
    config = changed(default, hardware__workers=4)
    assert data_problems(config, graph(4)) == []
    (problem,) = data_problems(config, graph(3))
    assert problem.key == "hardware.workers" and problem.fix == "hardware.workers=3"
    assert keys(data_problems(config, graph(0))) == ["dataset"]


def test_data_without_features_or_labels(default: dict[str, Any]) -> None:
    bare = replace(graph(4), features=None, labels=None)
    assert len(data_problems(default, bare)) == 2


def test_what_depends_on_a_mistake_is_not_judged(default: dict[str, Any]) -> None:
    config = changed(default, model__layers="x", train__epochs=0, hardware__workers=[2], optimizer__lr="high")
    assert keys(check_config(config)) == ["hardware.workers", "model.layers", "optimizer.lr", "train.epochs"]
    fanouts = changed(default, sampler__fanouts=[5])
    assert keys(check_config(fanouts)) == ["sampler.fanouts"]
    assert check_config(fanouts, unsure={"model"}) == []
    typo = Problem("model.layer", 1, "no such key", "model.layers")
    assert check_config(fanouts, known=[typo]) == []
    assert keys(check_config(changed(default, model__hidden=0, model__dropout=2, model__kernel="cuda"))) == [
        "model.dropout",
        "model.hidden",
        "model.kernel",
    ]


def test_conflicts_are_found_as_soon_as_each_component_can_be_made(default: dict[str, Any]) -> None:
    assert keys(check_config(changed(default, seed="x", hardware__nodes=2))) == ["hardware.nodes", "seed"]
    assert keys(check_config(changed(default, dataset__seed="x", hardware__nodes=2))) == ["dataset.seed"]
    assert keys(check_config(changed(default, hardware__nodes=2))) == ["hardware.nodes"]


def test_a_component_of_another_kind_is_one_problem(default: dict[str, Any]) -> None:
    config = changed(default, model___target_="gnnexp.samplers.fused.FusedOptions")
    (problem,) = check_config(config)
    assert problem.key == "model._target_" and "gnnexp.models.model.ModelOptions" in problem.allowed


def test_a_metric_that_does_not_fit_the_labels(default: dict[str, Any]) -> None:
    config = changed(default, task__metric="roc_auc")
    assert data_problems(config, graph(4)) == []
    assert keys(data_problems(config, replace(graph(4), num_classes=3))) == ["task.metric"]


@pytest.mark.parametrize(
    "path",
    [
        "sampler__threads",
        "hardware__threads",
        "hardware__workers",
        "train__epochs",
        "model__layers",
        "partitioner__num_parts",
        "hardware__launcher__timeout",
    ],
)
def test_a_value_that_is_not_given_is_not_judged(default: dict[str, Any], path: str) -> None:
    """It is known to be missing, and what stands in its place is of no type."""
    known = Problem(path.replace("__", "."), "???", "has no default", "set it")
    assert check_config(changed(default, **{path: "???"}), known=[known]) == []


def test_products_are_rounded_only_where_layers_and_data_types_allow_it(default: dict[str, Any]) -> None:
    rounded = changed(default, train__matmul="bf16")
    assert check_config(rounded) == []
    double = check_config(changed(rounded, train__dtype="float64", train__activations="bf16"))
    assert keys(double) == ["train.activations", "train.matmul"] and all("float64" in one.allowed for one in double)
    for key, value in (
        ("model", {"_target_": "gnnexp.models.pyg.PyGOptions", "module": "plain_modules.PairMean"}),
        ("paradigm", {"_target_": "gnnexp.paradigms.dgl_reference.DGLReference"}),
    ):
        if key == "paradigm":
            pytest.importorskip("dgl")
        problems = check_config({**rounded, key: value})
        assert [problem.fix for problem in problems if problem.key == "train.matmul"], key


def test_components_stand_only_where_components_are_taken(default: dict[str, Any]) -> None:
    target = {"_target_": "torch.utils.collect_env.run", "command": "touch executed"}
    places = (
        "optimizer__lr",
        "train",
        "hardware__links",
        "hardware__workers",
        "hardware__source",
        "sampler__fanouts",
        "seed",
        "name",
        "system",
        "preflight",
        "measure",
        "trace",
    )
    for place in places:
        problems = check_config(changed(default, **{place: target}))
        assert problems and all(key.startswith(place.replace("__", ".")) for key in keys(problems)), place


@pytest.mark.parametrize(
    "path",
    [
        "hardware.nodes",
        "hardware.workers",
        "hardware.device",
        "hardware.launcher",
        "train.dtype",
        "train.batch_size",
        "train.eval_every",
    ],
)
def test_what_others_read_must_be_there(default: dict[str, Any], path: str) -> None:
    """By `~hardware.nodes`, or in a file of one's own that leaves it out."""
    config, (group, name) = copy.deepcopy(default), path.split(".")
    del config[group][name]
    (problem,) = check_config(config)
    assert problem.key == path and problem.fix


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", 10])
def test_an_epoch_that_cannot_be_traced(default: dict[str, Any], value: object) -> None:
    assert keys(check_config(changed(default, trace=value))) == ["trace"]
    assert check_config(changed(default, trace=9)) == check_config(changed(default, trace=None)) == []


def test_an_external_command_is_not_traced(default: dict[str, Any]) -> None:
    external = {"_target_": "gnnexp.paradigms.external.command.Command", "command": ["true"]}
    assert "trace" in keys(check_config(changed({**default, "paradigm": external}, trace=1)))


def test_a_slow_rank_is_gone(default: dict[str, Any]) -> None:
    assert "straggler" not in default["hardware"]
    assert check_config(changed(default, hardware__straggler=None)) == [], "as older configurations have it"
    (problem,) = check_config(changed(default, hardware__straggler={"rank": 1, "phase": "load", "seconds": 1.0}))
    assert problem.key == "hardware.straggler" and "is gone" in problem.allowed


def test_a_key_that_is_no_text(default: dict[str, Any]) -> None:
    links = {"h2d": 1e9, 1: 2}
    wrong = changed(default, hardware__links=links, sampler__1=2)
    assert keys(check_config(wrong)) == ["hardware.links.1", "sampler.1"]


def test_a_model_without_layers_is_not_told_to_have_no_fanouts(default: dict[str, Any]) -> None:
    assert keys(check_config(changed(default, model__layers=0))) == ["model.layers"]


def test_a_users_class_is_not_called_while_its_options_are_wrong(
    default: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what its constructor does without them, or with defaults in their places."""
    (tmp_path / "mysamplers.py").write_text(
        "from gnnexp.samplers.fused import FusedOptions\n\n\nclass Mine(FusedOptions):\n"
        "    def __init__(self, sizes: str | None = None) -> None:\n"
        "        super().__init__([int(size) for size in sizes.split('-')])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    wrong = {**default, "sampler": {"_target_": "mysamplers.Mine", "sizes": 10}, "name": "a/b"}
    assert keys(check_config(wrong)) == ["name", "sampler.sizes"]


def test_a_mistake_in_hardware_leaves_the_launcher_to_be_asked(default: dict[str, Any]) -> None:
    reading = read(changed(default, hardware__wrokers=2))
    assert keys(list(reading.problems)) == ["hardware.wrokers"] and reading.launcher is not None
    assert read(changed(default, hardware__launcher={"_target_": "no.such.Launcher"})).launcher is None


def test_a_scale_that_is_no_number_is_refused_and_nothing_else(default: dict[str, Any]) -> None:
    dataset = {"_target_": "gnnexp.datasets.generated.dcsbm.Dcsbm", "scale": math.nan}
    wrong = {**changed(default, train__batch_of="full_graph"), "dataset": dataset}
    assert keys(check_config(wrong)) == ["dataset.scale"]


def test_facts_of_another_version_are_made_again() -> None:
    facts = GraphFacts.of(nasty_graph())
    told = json.loads(json.dumps(asdict(facts)))
    assert GraphFacts.from_json(told) == facts
    assert GraphFacts.from_json({**told, "new": 1}) is None
    assert GraphFacts.from_json({key: value for key, value in told.items() if key != "typed"}) is None


FULL = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
VERTEX = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel"}
TENSOR = {"_target_": "gnnexp.paradigms.tensor_parallel.TensorParallel"}


def captured(default: dict[str, Any], paradigm: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A configuration whose steps are captured, with other values."""
    return changed(
        default,
        **{
            "paradigm": paradigm,
            "sampler": FULL,
            "train__batch_size": None,
            "train__cuda_graph": True,
            "hardware__device": "auto",
            "measure": "free",
            **values,
        },
    )


@pytest.mark.parametrize(
    "paradigm",
    [
        VERTEX,
        {**VERTEX, "dependency": "cache"},
        {**VERTEX, "dependency": "stale"},
        TENSOR,
        {**TENSOR, "mode": "decoupled"},
    ],
)
def test_a_step_on_the_full_graph_can_be_captured(default: dict[str, Any], paradigm: dict[str, Any]) -> None:
    assert check_config(captured(default, paradigm)) == []


@pytest.mark.parametrize(
    ("paradigm", "values", "key"),
    [
        (VERTEX, {"hardware__device": "cpu"}, "train.cuda_graph"),
        (VERTEX, {"measure": "exact"}, "measure"),
        (VERTEX, {"hardware__throttle": 1e9}, "hardware.throttle"),
        (VERTEX, {"train__epochs": 2}, "train.epochs"),
        (VERTEX, {"trace": 2}, "trace"),
        (
            VERTEX,
            {"feature_store": {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 8}},
            "feature_store",
        ),
        ({**VERTEX, "chunks": 2}, {}, "train.cuda_graph"),
        ({**VERTEX, "dependency": "stale", "staleness": 1}, {}, "train.cuda_graph"),
        ({**VERTEX, "delay": 1}, {}, "train.cuda_graph"),
        ({**TENSOR, "device_memory": 1 << 30}, {}, "train.cuda_graph"),
        ({**TENSOR, "mode": "decoupled", "nn_device": "host"}, {}, "train.cuda_graph"),
        ({**TENSOR, "mode": "decoupled"}, {"model___target_": "gnnexp.models.gat.GATOptions"}, "train.cuda_graph"),
        ({"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 2}, {}, "train.cuda_graph"),
        ({"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, {}, "train.cuda_graph"),
    ],
)
def test_what_cannot_be_captured_is_one_problem_with_its_fix(
    default: dict[str, Any], paradigm: dict[str, Any], values: dict[str, Any], key: str
) -> None:
    (problem,) = check_config(captured(default, paradigm, **values))
    assert problem.key == key and "cuda_graph=false" in problem.fix
    assert check_config(captured(default, paradigm, **{**values, "train__cuda_graph": False})) == []


def test_steps_with_other_links_cannot_be_captured(default: dict[str, Any]) -> None:
    task = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}
    assert "task" in keys(check_config(captured(default, VERTEX, task=task)))
    assert "task" not in keys(check_config(captured(default, VERTEX, task=task, train__cuda_graph=False)))


def test_steps_with_sparse_features_cannot_be_captured(default: dict[str, Any]) -> None:
    config = captured(default, VERTEX)
    assert data_problems(config, mostly_zero(sparse=False)) == []
    (problem,) = data_problems(config, mostly_zero())
    assert problem.key == "train.cuda_graph" and "dataset.sparse=false" in problem.fix


@pytest.mark.parametrize(
    ("val", "test", "said"),
    [
        (1, 1, None),
        (1, 0, None),
        (0, 1, "there are no validation vertices: the last evaluated epoch counts as the best one"),
        (0, 0, "there are no validation and no test vertices: no epoch is evaluated"),
    ],
)
def test_a_run_without_validation_vertices_says_which_epoch_it_takes(
    default: dict[str, Any], val: int, test: int, said: str | None
) -> None:
    graph = nasty_graph()
    splits = replace(graph.splits, val=graph.splits.val[:val], test=graph.splits.test[:test])
    assert validation_note(experiment_of(default), replace(graph, splits=splits)) == said
    never = experiment_of(changed(default, train__eval_every=None))
    assert validation_note(never, replace(graph, splits=splits)) is None


def test_classes_without_a_training_vertex_are_counted(default: dict[str, Any]) -> None:
    graph = nasty_graph()
    assert graph.labels is not None
    labels = torch.zeros_like(graph.labels)
    splits = Splits(*(torch.tensor(ids) for ids in ([0, 1], [2], [3, 4, 5])))
    labels[:6] = torch.tensor([0, 1, 0, 2, 1, 3])
    experiment = experiment_of(default)
    found = replace(graph, labels=labels, num_classes=5, splits=splits)
    assert unseen_note(experiment, found) == (
        "3 of 5 classes have no training vertex: no prediction of their 0 validation and 2 test vertices can be right"
    )
    labels[3] = labels[5] = -1  # no label
    assert unseen_note(experiment, found) is None
    links = experiment_of(compose(["tracker=none", "task=link_prediction"]).config)
    labels[3] = 2
    assert unseen_note(links, found) is None and len(split_notes(experiment, found)) == 1


def test_a_run_of_links_looks_at_links() -> None:
    experiment = experiment_of(compose(["tracker=none", "task=link_prediction"]).config)
    graph = nasty_graph()
    links = {"train": torch.zeros(2, 2, dtype=torch.int64), "test": torch.zeros(1, 2, dtype=torch.int64)}
    assert "there are no validation links: the last" in validation_note(experiment, replace(graph, links=links))
    assert validation_note(experiment, replace(graph, links={**links, "valid": links["test"]})) is None
