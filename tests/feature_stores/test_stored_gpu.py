"""Layers read rows where they are stored: the same bits as a matrix of a batch's rows, and the same counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch

from gnnexp.feature_stores.local import LocalStore
from gnnexp.graph.sparse import StoredRows
from gnnexp.models.model import Model
from gnnexp.models.sage import SAGELayer, SAGEOptions
from gnnexp.ops.backends import has_triton, is_interpreted, make_backend
from gnnexp.paradigms.data_parallel import DataParallel
from gnnexp.testing.graphs import nasty_graph, weighted_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
    pytest.mark.skipif(
        not has_triton() or (torch.version.cuda is None and not is_interpreted()),
        reason="needs Triton, and on the emulated device TRITON_INTERPRET=1",
    ),
]
SHARDED = {"_target_": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions", "capacity": 9}


@contextmanager
def _forced(stored: bool) -> Iterator[list[int]]:
    """Whether the paradigm lets the first layer read stored rows; collects the numbers of rows that became a matrix."""
    dense: list[int] = []
    to_dense = StoredRows.to_dense

    def watched(rows: StoredRows) -> torch.Tensor:
        dense.append(rows.shape[0])
        return to_dense(rows)

    with patch.object(DataParallel, "reads_stored_rows", stored), patch.object(StoredRows, "to_dense", watched):
        yield dense


def _curve(config: dict[str, Any], way: str, size: int, stored: bool, steps: int, weighted: bool) -> tuple[Curve, int]:
    graph = weighted_graph() if weighted else nasty_graph()
    with _forced(stored) as dense:
        found = run_steps(config, graph, steps, placed(way, graph, size))
    return found, sum(dense)


def assert_same(
    ranks: Any,
    size: int,
    config: dict[str, Any],
    steps: int = 3,
    *,
    way: str = "data",
    weighted: bool = False,
    stored: bool = True,
) -> None:
    """Compare bit by bit; `stored` is whether rows are read where they are at all."""
    config["hardware"] = {**config["hardware"], "workers": size, "device": "cuda"}
    there, matrix = (ranks(size).run(_curve, config, way, size, on, steps, weighted) for on in (True, False))
    for (one, dense), (other, never) in zip(there, matrix, strict=True):
        assert one.losses == other.losses and (one.work, one.sent_bytes, one.rounds) == (
            other.work,
            other.sent_bytes,
            other.rounds,
        )
        assert all(gradient.equal(other.gradients[name]) for name, gradient in one.gradients.items())
        rows = sum(amount for name, amount in one.work.items() if name.startswith("features_loaded"))
        most = rows * (2 if config["model"].get("residual") else 1)  # the skip connection reads them once more
        assert never == 0 and (0 < dense < most if stored else dense == 0), "only rows of destinations become a matrix"


def _config(name: str, way: str = "data", /, **changes: Any) -> dict[str, Any]:
    store = {"tier": "device", **changes.pop("feature_store", {})}
    return config_in(
        way,
        {**MODELS[name], "kernel": "triton", "input_dropout": 0.0, **changes.pop("model", {})},
        feature_store=store,
        **changes,
    )


@pytest.mark.parametrize(
    ("model", "size", "dtype", "weighted"),
    [
        ("sage", 1, "float32", False),
        ("gcn", 1, "float64", False),
        ("gin", 2, "float32", False),
        ("sage", 2, "float64", True),
        ("gcn", 1, "float32", True),
        ("gin", 1, "float64", True),
    ],
)
def test_losses_and_gradients_have_the_same_bits(ranks, model, size, dtype, weighted):
    options = {"residual": True, "norm": True} if weighted else {}
    assert_same(ranks, size, _config(model, train={"dtype": dtype}, model=options), weighted=weighted)


@pytest.mark.parametrize(
    ("model", "dtype", "narrow", "sampler"),
    [
        ("sage", "float32", "bfloat16", "cuda"),
        ("gcn", "float32", "bfloat16", "cpu"),
        ("gin", "float64", "bfloat16", "cuda"),
    ],
)
def test_rows_in_bfloat16_are_widened_in_registers(ranks, model, dtype, narrow, sampler):
    assert_same(
        ranks, 1, _config(model, train={"dtype": dtype}, feature_store={"dtype": narrow}, sampler={"device": sampler})
    )


@pytest.mark.parametrize(
    ("size", "store"), [(1, {"tier": "host"}), (2, {"tier": "host", "cache": SHARDED}), (1, {"tier": "uva"})]
)
def test_rows_that_cross_in_bfloat16_stay_narrow(ranks, size, store):
    assert_same(ranks, size, _config("sage", feature_store={"dtype": "bfloat16", **store}))


def _rounded(config: dict[str, Any], narrow: bool, weighted: bool) -> tuple[Curve, dict[torch.dtype, int]]:
    """Train, and count the bytes that the backward pass keeps by type, for tensors of 16 columns."""
    kept: dict[torch.dtype, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 2 and tensor.shape[1] == 16 and not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.dtype] = kept.get(tensor.dtype, 0) + tensor.untyped_storage().nbytes()
        return tensor

    narrows, saved = Model._narrows, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with patch.object(Model, "_narrows", lambda *given: narrow and narrows(*given)), saved:
        return run_steps(config, weighted_graph() if weighted else nasty_graph(), 3), kept


@pytest.mark.parametrize(
    ("model", "size", "options"),
    [
        ("sage", 1, {"layers": 3}),
        ("gcn", 2, {"dropout": 0.0}),
        ("gin", 1, {"layers": 3}),
        ("sage", 1, {"residual": True}),
        ("gcn", 1, {"weighted": True, "hidden": 7, "layers": 3}),
        pytest.param("gat", 1, {}, marks=pytest.mark.slow),
    ],
)
def test_rows_between_layers_stay_in_bfloat16(ranks, model, size, options):
    weighted = options.pop("weighted", False)
    config = _config(
        model,
        model=options,
        train={"dtype": "float32", "activations": "bf16"},
        sampler={"fanouts": [4, 3, 2][: options.get("layers", 2)]},
        hardware={"workers": size, "device": "cuda"},
    )
    there, wide = (ranks(size).run(_rounded, config, narrow, weighted) for narrow in (True, False))
    for (one, held), (other, before) in zip(there, wide, strict=True):
        assert one.losses == other.losses and one.work == other.work and one.sent_bytes == other.sent_bytes
        assert all(gradient.equal(other.gradients[name]) for name, gradient in one.gradients.items())
        if model != "gat" and options.keys() <= {"layers", "dropout"}:
            assert held[torch.bfloat16] > 0 and torch.bfloat16 not in before
            assert sum(held.values()) < sum(before.values())


def test_batches_that_are_prepared_ahead(ranks):
    assert_same(ranks, 1, _config("gcn", train={"overlap": True}, sampler={"device": "auto"}), steps=4)


def test_a_full_batch_keeps_its_matrix(ranks):
    full = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    config = _config("sage", train={"batch_size": None})
    assert_same(ranks, 1, {**config, "sampler": full}, stored=False)


@pytest.mark.parametrize("narrow", [None, "bfloat16"])
def test_dropout_of_inputs_reads_stored_rows(ranks, narrow):
    """After dropout the rows are a matrix; the matrix before dropout is never made."""
    config = _config("sage", model={"input_dropout": 0.3}, feature_store={"dtype": narrow})
    assert_same(ranks, 1, config, stored=False)


@pytest.mark.parametrize(
    ("model", "way", "size"), [pytest.param("gat", "data", 1, marks=pytest.mark.slow), ("sage", "split", 2)]
)
def test_other_layers_and_exchanged_rows_stay_a_matrix(ranks, model, way, size):
    assert_same(ranks, size, _config(model, way), way=way, stored=False)


def test_a_layer_that_projects_first_reads_a_matrix(ranks):
    """13 columns become one, so all rows are projected before the sums."""
    graph, config = nasty_graph(), _config("gcn", model={"hidden": 1, "dropout": 0.0}, hardware={"device": "cuda"})
    (found, dense), (expected, _) = (
        ranks(1).run(_curve, config, "data", 1, stored, 2, False)[0] for stored in (True, False)
    )
    assert found.losses == expected.losses and dense >= found.work["features_loaded_local"] > 0
    assert graph.num_features == 13


class Doubled(Model):
    """Computes with the features before the first layer does."""

    def forward(self, batch, features, *rest):
        return super().forward(batch, features * 2, *rest)


@pytest.mark.parametrize(("model", "stored"), [(Model, True), (Doubled, False)])
def test_a_model_that_computes_with_features_gets_a_matrix(model, stored):
    made = model(SAGEOptions(hidden=4, layers=1))
    made.layers.append(SAGELayer(3, 4, activation="relu", residual=False, norm=False))
    for kernel in ("triton", "torch"):
        made.backend = make_backend(kernel, torch.device("cuda"))
        assert made.can_read_stored() == (stored and kernel == "triton")


def test_a_layer_with_its_own_sums_gets_a_matrix() -> None:
    from gnnexp.models.local import can_sum_stored_rows

    class Own(SAGELayer):
        def aggregate(self, block, x, weight):
            return super().aggregate(block, x, weight)

    end = {"activation": "relu", "residual": False, "norm": False}
    assert can_sum_stored_rows(SAGELayer(3, 4, **end)) and not can_sum_stored_rows(Own(3, 4, **end))


def test_trained_values_are_refused() -> None:
    from gnnexp.testing.blocks import make_block

    device = torch.device("cuda")
    block = make_block(3, 5, 6, 1).to(device)
    ids = torch.arange(5, device=device)
    rows = StoredRows(torch.ones(5, 2, device=device, requires_grad=True), ids, torch.float32)
    with pytest.raises(AssertionError, match="take no gradient"):
        make_backend("triton", device).sums.aggregate_stored(block, rows, None, None)


def test_the_record_says_what_is_read_where(ranks):
    for tier, narrow, words in (
        ("device", None, "read where they are stored"),
        ("device", "bfloat16", "read where"),
        ("host", "bfloat16", "widened by"),
        ("host", None, ""),
    ):
        found = ranks(1).run(
            _stored, _config("sage", feature_store={"tier": tier, "dtype": narrow}, hardware={"device": "cuda"})
        )[0]
        assert (found or "").startswith(words) and bool(found) == bool(words)
    assert ranks(1).run(_stored, _config("gat", hardware={"device": "cuda"})) == [None]
    assert ranks(1).run(_stored, {**_config("sage", hardware={"device": "cuda"}, model={"kernel": "torch"})}) == [None]


def _stored(config: dict[str, Any]) -> str | None:
    import tempfile
    from pathlib import Path

    from gnnexp.comm.environment import read_environment
    from gnnexp.experiment.build import experiment_of
    from gnnexp.training.assemble import Artifacts, assemble

    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(config), Artifacts(nasty_graph()), Path(folder), read_environment())
        assert isinstance(job.store, LocalStore)
        job.comm.release()
        return job.stored_rows
