"""What a rank is made of, and what it says of itself."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments import assembled

from gnnexp.comm.environment import Environment
from gnnexp.errors import DataError
from gnnexp.graph.storage.format import save_graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts


@pytest.mark.parametrize(("throttle", "said"), [(None, None), (1.875e9, "emulated: 1.875e+09 bytes/s")])
def test_an_emulated_link_is_named_in_the_record(throttle: float | None, said: str | None) -> None:
    config: dict[str, Any] = small_config(MODELS["gcn"], hardware={"throttle": throttle})
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(nasty_graph()), Path(folder), Environment())
    assert job.facts["throttle"] == said


def test_backward_passes_stay_on_the_thread_of_the_training_loop(tmp_path: Path) -> None:
    """Exchanges are parts of them: on a GPU autograd would run them on a thread of its own (gnnexp.measure.phases)."""
    with torch.autograd.set_multithreading_enabled(True):
        assembled(small_config(MODELS["gcn"]), Artifacts(nasty_graph()), tmp_path, Environment())
        assert not torch._C._is_multithreading_enabled()


def test_a_rank_has_one_pool_and_names_what_its_peak_is_of(tmp_path: Path) -> None:
    """Each pool keeps what is idle up to a limit of its own."""
    cache = {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 0.2}
    config = small_config(MODELS["gcn"], feature_store={"cache": cache})
    job, _ = assembled(config, Artifacts(nasty_graph()), tmp_path, Environment())
    assert job.store.cache is not None and job.model.backend.name == "numba"
    assert job.sampler.pool is job.store.pool is job.store.cache.pool is job.model.backend.pool
    assert job.facts["host_peak"] == "of each epoch"
    assert job.facts["kernel"] == "numba", "what model.kernel=auto chose"


@pytest.mark.parametrize("removed", ["all of it", "an array"])
def test_a_prepared_graph_that_was_removed_is_prepared_again_by_resume(tmp_path: Path, removed: str) -> None:
    save_graph(nasty_graph(), tmp_path / "graph")
    if removed == "all of it":
        shutil.rmtree(tmp_path / "graph")
    else:
        (tmp_path / "graph" / "features.npy").unlink()
    with pytest.raises(DataError) as caught:
        assembled(small_config(MODELS["gcn"]), Artifacts(tmp_path / "graph"), tmp_path / "run", Environment())
    assert {problem.fix for problem in caught.value.problems} == {f"gnnexp resume {tmp_path / 'run'} prepares it again"}
