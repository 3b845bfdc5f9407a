"""Columns of tensor parallelism: traffic by its formulas, even loads, and chunks within their budget."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, seen
from full_graph import FULL_MODELS, tensor_config
from narrow_columns import NARROW, narrow_config
from sparse_graphs import mostly_zero

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.comm.tensor_split import even_bounds, even_sizes, values_moved
from gnnexp.graph.graph import Graph
from gnnexp.models.gcn import GCNOptions
from gnnexp.models.layer import Layer
from gnnexp.paradigms.columns.key_exchange import AttentionSizes, least_sent, values_sent
from gnnexp.paradigms.columns.orders import ColumnShares, Inputs, Order, layer_values, projected_layers
from gnnexp.paradigms.columns.trainer import ColumnTrainer
from gnnexp.paradigms.loops.local_chunks import layers_of
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import nasty_graph, weighted_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

# --- counts ----------------------------------------------------------------------------------------------------------
STEPS, FEATURES, HIDDEN, CLASSES, HEADS = 3, 13, 16, 4, 2


def _steps(config: dict[str, Any]) -> Curve:
    return run_steps(config, nasty_graph(), STEPS)


def _exchanged(num_rows: int, width: int, size: int) -> int:
    """Values that one split (or gather) sends: all but those that stay; (N-1)/N of them where all divides."""
    rows, columns = even_sizes(num_rows, size), even_sizes(width, size)
    kept = sum(a * b for a, b in zip(rows, columns, strict=True))
    if num_rows % size == width % size == 0:
        assert num_rows * width - kept == num_rows * width * (size - 1) // size
    return num_rows * width - kept


@pytest.mark.parametrize(("size", "blocks"), [(2, 3), (3, 2)])
def test_dense_blocks_send_the_same_values_in_rounds_of_blocks_and_chunks(ranks, size, blocks):
    """B splits and one gather for each chunk; the same backward."""
    config = tensor_config("gcn", "decoupled", "float32", chunks=4, pipeline=True)
    config["paradigm"]["dense_blocks"] = blocks
    curves = ranks(size).run(_steps, config)
    assert {curve.rounds["activations"] for curve in curves} == {STEPS * 2 * (blocks + 4)}
    sent = sum(curve.sent_bytes["activations"] for curve in curves)
    assert sent == STEPS * 4 * 4 * _exchanged(nasty_graph().num_nodes, CLASSES, size)


def test_the_record_says_which_rows_a_chunk_reads_first(ranks):
    """Without locality chunk 0 reads nearly all of them, so there is little to hide its split behind."""
    config = tensor_config("gcn", "decoupled", "float32", chunks=4, pipeline=True)
    (first, *rest), *others = (facts["rows_first_read"] for facts in ranks(2).run(_facts, config))
    assert others == [[first, *rest]] and first + sum(rest) == nasty_graph().num_nodes
    assert len(rest) == 3 and first > sum(rest)


def _facts(config: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        facts = dict(trainer.facts())
        job.comm.release()
    return facts


@pytest.mark.parametrize(("size", "layers"), [(2, 1), (3, 2), (4, 3), (2, 5)])
def test_traffic_of_coupled_layers(ranks, size, layers):
    """2(2L-1) collectives less one: layer 1's features are stored by columns and take no gradient."""
    config = tensor_config("gcn", "coupled", "float32", model={"layers": layers})
    curves, vertices = ranks(size).run(_steps, config), nasty_graph().num_nodes
    for curve in curves:
        assert curve.rounds.get("features") == STEPS
        assert curve.rounds.get("activations", 0) == STEPS * (2 * (2 * layers - 1) - 2)
    sent = {tag: sum(c.sent_bytes.get(tag, 0) for c in curves) for tag in ("features", "activations")}
    assert sent["features"] == STEPS * 4 * _exchanged(vertices, FEATURES, size)
    assert sent["activations"] == STEPS * 4 * 4 * (layers - 1) * _exchanged(vertices, HIDDEN, size)


def _layer_by_layer(
    config: dict[str, Any], graph: Graph, order: Order, size: int, inputs: Inputs
) -> tuple[list[bool], int, int]:
    """Whether each layer projects first, and the values that a step sends as features and as activations."""
    experiment, facts = seen({**config, "hardware": {**config["hardware"], "workers": size}}, graph)
    layers = [layer for layer in layers_of(experiment.model, facts) if isinstance(layer, Layer)]
    shares = ColumnShares(facts.num_nodes, size, pad=config["paradigm"].get("pad", False))
    projects = projected_layers(layers, order, inputs, shares)
    values = [
        layer_values(layer, index, inputs, shares, projects=first)
        for index, (layer, first) in enumerate(zip(layers, projects, strict=True))
    ]
    features = 0 if projects[0] or inputs.trained else values[0]
    return list(projects), features, sum(values) - features


@pytest.mark.parametrize(
    ("model", "order", "size"),
    combinations(
        FULL_MODELS,
        ["aggregate", "project", "cheapest"],
        [2, 3, 4],
        quick=lambda model, order, size: (
            (model, order, size) in [("gin", "project", 3), ("sage", "cheapest", 4), ("gat", "cheapest", 3)]
        ),
    ),
)
def test_a_layer_sends_what_its_order_says(ranks, model, order, size):
    config = tensor_config(model, "coupled", "float32")
    config["paradigm"]["order"] = order
    inputs = Inputs(sparse=False, trained=False)
    projects, features, activations = _layer_by_layer(config, nasty_graph(), order, size, inputs)
    curves = ranks(size).run(_steps, config)
    sent = {tag: sum(curve.sent_bytes.get(tag, 0) for curve in curves) for tag in ("features", "activations")}
    assert sent == {"features": STEPS * 4 * features, "activations": STEPS * 4 * activations}
    if order == "cheapest" and model in ("gcn", "sage"):
        assert projects == [False, True], "13 columns once against 16 four times; 16 columns against 4"
    if order == "cheapest" and model == "gin":
        assert projects == [False, False], "its last layer projects to as many columns as it reads"


@pytest.mark.parametrize(
    ("kind", "order"),
    combinations(
        ["sparse", "trained"], ["aggregate", "project", "cheapest"], quick=lambda kind, order: order == "cheapest"
    ),
)
def test_sparse_and_trained_rows_in_any_order(ranks, kind, order, steps):
    """Sparse rows are always projected first. Trained rows are split, and take gradients."""
    store = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": FEATURES}
    config = tensor_config("sage", "coupled", **({"feature_store": store} if kind == "trained" else {}))
    config["paradigm"]["order"] = order
    make = mostly_zero if kind == "sparse" else nasty_graph
    curves, _ = assert_exact(ranks, 3, make, config, 1e-10, steps=steps)
    inputs = Inputs(sparse=kind == "sparse", trained=kind == "trained")
    projects, _, activations = _layer_by_layer(config, make(), order, 3, inputs)
    assert projects[0] == (kind == "sparse" or order == "project")
    if kind == "sparse":
        assert sum(curve.sent_bytes["activations"] for curve in curves) == steps * 8 * activations
    else:
        sent = {tag: sum(c.sent_bytes.get(tag, 0) for c in curves) for tag in ("features", "activations")}
        assert sum(sent.values()) == steps * 8 * activations


@pytest.mark.parametrize(
    ("model", "size"),
    combinations(FULL_MODELS, [2, 3, 4], quick=lambda *case: case in [("sage", 3), ("gat", 4)]),
)
def test_filled_up_columns_are_sent_and_shared_evenly(ranks, model, size):
    """Bytes are those of the filled-up widths, and every rank has equally many columns."""
    coupled = tensor_config(model, "coupled", "float32")
    coupled["paradigm"]["pad"] = True
    _, features, activations = _layer_by_layer(
        coupled, nasty_graph(), "aggregate", size, Inputs(sparse=False, trained=False)
    )
    curves = ranks(size).run(_steps, coupled)
    sent = {tag: sum(curve.sent_bytes.get(tag, 0) for curve in curves) for tag in ("features", "activations")}
    assert sent == {"features": STEPS * 4 * features, "activations": STEPS * 4 * activations}
    if model == "sage":
        assert features == _exchanged(60, -(-FEATURES // size) * size, size)
    decoupled = tensor_config(model, "decoupled", "float32")
    decoupled["paradigm"] |= {"pad": True, "attention_work": "replicated"}
    curves = ranks(size).run(_steps, decoupled)
    values, graph = 4 * _exchanged(60, -(-CLASSES // size) * size, size), nasty_graph()
    values += 2 * (size - 1) * 60 * 2 if "gat" in model else 0
    assert sum(curve.sent_bytes["activations"] for curve in curves) == STEPS * 4 * values
    edges = [curve.work["edges_computed"] for curve in curves]
    layers = decoupled["model"].get("layers", 2)
    assert sum(edges) == STEPS * layers * (graph.num_edges + (60 if "gat" in model else 0))
    assert max(edges) - min(edges) <= STEPS * layers, "edges that the ranks do not divide"


def test_the_published_code_fills_41_classes_up_to_48():
    assert ColumnShares(232_965, 16, pad=True).filled(41) == 48 and ColumnShares(232_965, 16).filled(41) == 41


@pytest.mark.parametrize(
    ("model", "order"),
    combinations(["gcn", "sage", "gin"], ["project", "cheapest"], quick=lambda *case: case == ("gcn", "project")),
)
def test_edge_weights_in_any_order(ranks, model, order, steps):
    config = tensor_config(model, "coupled", chunks=3)
    config["paradigm"] |= {"order": order, "pad": True}
    assert_exact(ranks, 3, weighted_graph, config, 1e-10, steps=steps)


def test_the_cheaper_order_halves_the_volume_on_the_widths_of_reddit():
    """NeutronTP's Figure 10: what naive tensor parallelism sends, relative to the decoupled one."""
    ranks, vertices, inputs = 4, 232_965, Inputs(sparse=False, trained=False)
    options = GCNOptions(hidden=256, layers=2)
    with torch.device("meta"):
        layers = [options.make_layer(0, 602, 256), options.make_layer(1, 256, 41)]
    bounds = even_bounds(41, ranks)
    decoupled = 4 * values_moved(even_sizes(vertices, ranks), bounds)
    volume = {}
    for order in ("aggregate", "project", "cheapest"):
        projects = projected_layers(layers, order, inputs, ColumnShares(vertices, ranks))
        volume[order] = sum(
            layer_values(layer, index, inputs, ColumnShares(vertices, ranks), projects=first)
            for index, (layer, first) in enumerate(zip(layers, projects, strict=True))
        )
        assert projects == {"aggregate": (False, False), "project": (True, True), "cheapest": (False, True)}[order]
    relative = {order: values / decoupled for order, values in volume.items()}
    assert relative == pytest.approx({"aggregate": 9.915, "project": 7.244, "cheapest": 4.671}, abs=1e-3)


@pytest.mark.parametrize("size", [2, 3])
def test_attention_shares_two_key_columns_per_head(ranks, size):
    """Projected rows are split and gathered, (N-1) V 2K keys are shared, and the same again backwards."""
    curves, vertices = ranks(size).run(_steps, tensor_config("gat", "coupled", "float32")), nasty_graph().num_nodes
    values = 2 * _exchanged(vertices, HIDDEN, size) + (size - 1) * vertices * 2 * HEADS
    values += 2 * _exchanged(vertices, CLASSES, size) + (size - 1) * vertices * 2
    assert sum(c.sent_bytes["activations"] for c in curves) == STEPS * 4 * 2 * values
    assert all(c.rounds["activations"] == STEPS * 2 * 2 * 3 for c in curves)


@pytest.mark.parametrize(
    ("way", "layers"),
    combinations(
        [("gcn", "shared"), ("gat", "shared"), ("gat", "replicated")],
        [1, 2, 3, 4, 5, 6],
        quick=lambda way, layers: layers == {("gcn", "shared"): 6, ("gat", "shared"): 1, ("gat", "replicated"): 6}[way],
    ),
)
def test_decoupled_layers_exchange_four_times_whatever_their_number(ranks, layers, way):
    """Attention: 2K key columns per vertex (K = 1 in the last layer), a weight per edge if shared, and back."""
    (model, work), size, vertices = way, 3, nasty_graph().num_nodes
    edges = nasty_graph().num_edges + vertices if work == "shared" else 0  # GAT adds self-loops
    extra = (size - 1) * (vertices * 2 + edges) if model == "gat" else 0
    expected = STEPS * 4 * (4 * _exchanged(vertices, CLASSES, size) + 2 * extra)
    attention = {"gcn": 0, "gat": 4 if work == "shared" else 2}[model]
    for chunks, pipeline in ((1, False), (4, False), (4, True)):
        config = tensor_config(model, "decoupled", "float32", chunks, pipeline, model={"layers": layers})
        config["paradigm"]["attention_work"] = work
        curves = ranks(size).run(_steps, config)
        sent = sum(curve.sent_bytes["activations"] for curve in curves)
        rounds = {curve.rounds["activations"] for curve in curves}
        assert set(curves[0].rounds) == {"activations", "gradients"}
        if pipeline:  # shares of a chunk's rows differ by one here and there: the same bytes but for those
            assert rounds == {STEPS * (4 * chunks + attention)}
            assert abs(sent - expected) <= STEPS * 4 * 4 * chunks * size * CLASSES
        else:
            assert (sent, rounds) == (expected, {STEPS * (4 + attention)})


def _read_keys(graph: Graph, size: int) -> int:
    """Foreign sources and destinations of the ranks' edges. Ranges of destinations have about equal costs."""
    loops = torch.arange(graph.num_nodes)
    source = torch.cat((graph.indices.long(), loops))
    target = torch.cat((torch.repeat_interleave(loops, graph.in_degree), loops))
    total = torch.cumsum(graph.in_degree + 2, 0)
    owner = torch.repeat_interleave(torch.arange(size), torch.tensor(even_sizes(graph.num_nodes, size)))
    reader = sum((total > total[-1] * number // size).long() for number in range(1, size))
    foreign = 0
    for rank in range(size):
        ends = source[reader[target] == rank].unique(), loops[reader == rank]
        foreign += sum(int((owner[part] != rank).sum()) for part in ends)
    return foreign


def _sparse() -> Graph:
    """Fewer edges than vertices."""
    return nasty_graph(60, 50)


def _sent_by(make: Callable[[], Graph], config: dict[str, Any]) -> tuple[int, int, str]:
    """Values of activations and rounds per step, and how attention was computed."""
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(make()), Path(folder), read_environment())
        way = trainer.facts()["attention_work"]
        job.comm.release()
    curve = run_steps(config, make(), STEPS)
    return curve.sent_bytes["activations"] // (4 * STEPS), curve.rounds["activations"] // STEPS, way


@pytest.mark.parametrize(
    ("make", "heads", "frozen", "size", "cheap"),
    [
        (nasty_graph, 1, False, 2, "replicated"),
        (nasty_graph, 1, True, 3, "replicated"),
        (_sparse, 8, False, 3, "halo"),
        (_sparse, 8, True, 4, "halo"),
    ],
)
def test_the_cheapest_attention_sends_the_fewest_values(ranks, make, heads, frozen, size, cheap):
    """Every way sends what its formula says, and `cheapest` takes the one that sends the least."""
    graph = make()
    vertices = graph.num_nodes
    sizes = AttentionSizes(
        size, vertices, graph.num_edges + vertices, heads, _read_keys(graph, size), trained=not frozen
    )
    formula, sent = values_sent(sizes), {}
    for work in (*formula, "cheapest"):
        config = tensor_config("gat", "decoupled", "float32", model={"out_heads": heads})
        config["paradigm"] |= {"attention_work": work, "attention": "frozen" if frozen else "trained"}
        found = ranks(size).run(_sent_by, make, config)
        sent[work] = sum(values for values, _, _ in found) - 4 * _exchanged(vertices, CLASSES, size)
        assert {way for _, _, way in found} == {cheap if work == "cheapest" else work}
        per_pass = 1 if sent[work] == formula["replicated"] and work in ("replicated", "cheapest") else 2
        assert {rounds for _, rounds, _ in found} == {4 + per_pass * (1 if frozen else 2)}
    assert {work: sent[work] for work in formula} == formula
    assert sent["cheapest"] == min(formula.values()) == formula[cheap]


def test_nothing_is_sent_by_a_single_rank():
    sizes = AttentionSizes(1, 9, 20, 2, 0, trained=True)
    assert set(values_sent(sizes).values()) == {0} and least_sent(sizes) == "shared"


def _narrow_steps(config: dict[str, Any], columns: int) -> Curve:
    return run_steps(config, NARROW[columns](), STEPS)


def test_chunks_stay_only_where_they_are_visited(ranks):
    """A rank without columns visits no chunk, or only those of the edges whose attention it computes."""
    for model, visits in (("gcn", False), ("gat", True)):
        config = narrow_config(model, 1, "decoupled", chunks=3, resident_memory=10**9)
        curves = ranks(2).run(_narrow_steps, config, 1)
        kept = [curve.work.get("tier/resident_bytes", 0) for curve in curves]
        crossed = [curve.work.get("tier/h2d_bytes", 0) for curve in curves]
        assert kept[0] > 0 and (kept[1] > 0) == visits and kept[1] < kept[0]
        assert crossed[1] < crossed[0]


@pytest.mark.parametrize(
    ("columns", "size", "model", "order"),
    combinations(
        NARROW,
        [2, 3, 4],
        MODELS,
        ["aggregate", "project"],
        quick=lambda *case: case in [(1, 3, "sage", "aggregate"), (2, 4, "gat", "aggregate"), (3, 4, "gcn", "project")],
    ),
)
def test_ranks_without_columns_send_their_rows_to_the_others(ranks, columns, size, model, order):
    """Coupled and decoupled: bytes and rounds of the formulas, with shares of columns of which some are empty."""
    coupled = narrow_config(model, columns, "coupled", order=order)
    inputs = Inputs(sparse=False, trained=False)
    _, features, activations = _layer_by_layer(coupled, NARROW[columns](), order, size, inputs)
    curves = ranks(size).run(_narrow_steps, coupled, columns)
    sent = {tag: sum(curve.sent_bytes.get(tag, 0) for curve in curves) for tag in ("features", "activations")}
    assert sent == {"features": STEPS * 8 * features, "activations": STEPS * 8 * activations}
    assert len({curve.rounds["activations"] for curve in curves}) == 1
    decoupled, vertices = narrow_config(model, columns, "decoupled", attention_work="replicated"), 60
    curves = ranks(size).run(_narrow_steps, decoupled, columns)
    values = 4 * _exchanged(vertices, columns, size)
    values += 2 * (size - 1) * vertices * 2 if model == "gat" else 0
    assert sum(curve.sent_bytes["activations"] for curve in curves) == STEPS * 8 * values
    assert {curve.rounds["activations"] for curve in curves} == {STEPS * (6 if model == "gat" else 4)}
    idle = curves[-1].work["edges_computed"]
    assert (idle == 0) == (columns < size), "the last rank has the fewest columns"


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_only_results_of_dense_updates_on_the_host_cross(ranks, model):
    """n rows of classes and keys to the device, their gradients back; of features nothing."""
    on_host, on_device = tensor_config(model, "decoupled", "float32"), tensor_config(model, "decoupled", "float32")
    on_host["paradigm"]["nn_device"] = "host"
    vertices, columns = nasty_graph().num_nodes, CLASSES + (2 if model == "gat" else 0)
    host, device = (ranks(2).run(_steps, config) for config in (on_host, on_device))
    for before, after in zip(device, host, strict=True):
        assert before.losses == after.losses
    assert sum(curve.work["tier/d2h_bytes"] for curve in host) == STEPS * 4 * vertices * columns
    assert all("tier/d2h_bytes" not in curve.work for curve in device)
    topology = sum(curve.work["tier/h2d_bytes"] for curve in device) - 4 * vertices * FEATURES
    assert sum(curve.work["tier/h2d_bytes"] for curve in host) == topology + STEPS * 4 * vertices * columns


def test_the_record_says_into_how_many_chunks_a_budget_cut(tmp_path):
    """As few as fit it."""
    config = tensor_config("gcn", "decoupled", "float32")
    counts = []
    for budget in (1 << 30, 15_000, 7_000):
        config["paradigm"] |= {"chunks": None, "device_memory": budget}
        _, trainer = assembled(config, Artifacts(nasty_graph()), tmp_path, Environment())
        counts.append(trainer.facts()["chunks"])
    assert counts == [1, 2, 5]


@pytest.mark.parametrize("mode", ["coupled", "decoupled"])
def test_the_load_is_even(ranks, mode):
    """Max over mean of edges and of bytes is at most that of the shares of columns."""
    size = 3
    curves = ranks(size).run(_steps, tensor_config("gcn", mode, "float32", model={"layers": 3}))
    graph = nasty_graph()
    edges = [curve.work["edges_computed"] for curve in curves]
    assert sum(edges) == STEPS * 3 * graph.num_edges
    dims = {"coupled": [FEATURES, HIDDEN, HIDDEN], "decoupled": [CLASSES] * 3}[mode]
    worst = max(-(-width // size) / (width / size) for width in dims)
    assert max(edges) * size / sum(edges) <= worst + 1e-2
    sent = [sum(curve.sent_bytes[tag] for tag in curve.sent_bytes if tag != "gradients") for curve in curves]
    assert max(sent) * size / sum(sent) <= worst


def _probed(config: dict[str, Any], classes: int = 24) -> tuple[int, dict[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        graph = nasty_graph(3000, 40000, 64, classes)
        job, trainer = assembled(config, Artifacts(graph), Path(folder), read_environment())
        assert isinstance(trainer, ColumnTrainer)
        memory = probe_memory(job)
        job.comm.release()
    return len(trainer.chunks), memory


@pytest.mark.parametrize(
    ("model", "mode", "pipeline"),
    [
        ("gcn", "coupled", False),
        ("gat", "coupled", False),
        ("sage", "project", False),
        ("gcn", "decoupled", True),
        ("gat", "decoupled", False),
        ("gat", "decoupled", True),
        ("sage", "decoupled", False),
    ],
)
def test_chunks_stay_within_the_budget(ranks, model, mode, pipeline):
    budget = 1_000_000 if mode == "decoupled" else 2_500_000
    order = "project" if mode == "project" else "aggregate"
    mode = "coupled" if mode == "project" else mode
    config = tensor_config(model, mode, "float32", pipeline=pipeline, model={"hidden": 32})
    config["paradigm"] |= {"chunks": None, "device_memory": budget, "order": order}
    for chunks, memory in ranks(2).run(_probed, config):
        assert 1 < chunks < 200, "a budget that matters, and is made use of"
        assert budget / 10 < memory["device_peak_bytes"] <= budget


@pytest.mark.parametrize(
    ("mode", "classes", "heads", "work"),
    combinations(
        ["coupled", "decoupled"],
        [2, 4, 8, 16],
        [1, 4, 8],
        ["shared", "replicated"],
        quick=lambda *case: case in (("decoupled", 2, 4, "shared"), ("decoupled", 8, 8, "replicated")),
    ),
)
def test_chunks_of_few_columns_have_room_for_their_keys(ranks, mode, classes, heads, work):
    budget = 900_000 if mode == "decoupled" and heads == 1 else 3_500_000
    config = tensor_config(
        "gat", mode, "float32", model={"hidden": 8 * heads if mode == "decoupled" else 8, "heads": heads}
    )
    config["paradigm"] |= {"chunks": None, "device_memory": budget}
    if mode == "decoupled":
        config["paradigm"]["attention_work"] = work
    for chunks, memory in ranks(2).run(_probed, config, classes):
        assert 1 < chunks < 400
        assert budget / 10 < memory["device_peak_bytes"] <= budget
