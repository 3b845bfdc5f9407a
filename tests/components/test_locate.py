"""Components that were written before 0.2.0 are refused by name, with the page that says what to do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiments import setting_in

from gnnexp.components.locate import SPLIT, component
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.kinds import kind_of
from gnnexp.feature_stores.cache import CacheOptions
from gnnexp.models.sage import SAGELayer, SAGEOptions
from gnnexp.paradigms.base import Paradigm, trainer_of
from gnnexp.paradigms.trainer import Trainer

ROOT = Path(__file__).parents[2]
OLD = {
    "sampler": "from gnnexp.samplers.layerwise import LayerSampler as Base",
    "feature_store": "from gnnexp.feature_stores.local import LocalStore as Base",
    "model": "from gnnexp.models.model import Model as Base",
    "task": "from gnnexp.tasks.node_classification import NodeClassification as Base",
    "cache": "from gnnexp.feature_stores.static_cache import StaticCache as Base",
}


def problem_of(group: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    module = f"old_{folder.name}"
    (folder / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    kind = CacheOptions if group == "cache" else kind_of(group)
    problem = component(f"{group}._target_", f"{module}.Mine", (kind,))
    assert isinstance(problem, Problem) and problem.key == f"{group}._target_" and problem.value == f"{module}.Mine"
    return problem


@pytest.mark.parametrize("group", OLD)
def test_a_class_of_a_rank_lacks_options(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{OLD[group]}\n\n\nclass Mine(Base):\n    def __init__(self):\n        raise AssertionError('called')\n"
    problem = problem_of(group, text, tmp_path, monkeypatch)
    assert "lacks a frozen dataclass of its options" in problem.allowed and SPLIT in problem.fix


def test_an_import_by_an_earlier_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from gnnexp.models.gcn import GCN\n\n\nclass Mine(GCN):\n    pass\n"
    problem = problem_of("model", text, tmp_path, monkeypatch)
    assert "gnnexp.models.gcn.GCN, which is gnnexp.models.gcn.GCNOptions" in problem.allowed and SPLIT in problem.fix


def test_options_are_a_dataclass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from gnnexp.models.model import ModelOptions\n\n\nclass Mine(ModelOptions):\n"
        "    def make_layer(self, index, in_dim, out_dim, num_relations=0):\n        pass\n"
    )
    problem = problem_of("model", text, tmp_path, monkeypatch)
    assert "frozen dataclass" in problem.allowed and SPLIT in problem.fix


def test_the_page_is_there() -> None:
    assert (ROOT / SPLIT).exists()


REPLACED_MEMBERS = {
    "a trainer": (
        "paradigm",
        "from gnnexp.paradigms.base import Paradigm\nfrom gnnexp.paradigms.trainer import Trainer",
        "class Ours(Trainer[int]):\n    def state_dict(self):\n        return {}",
        "class Mine(Paradigm):\n    def trainer(self, job) -> Ours:\n        raise AssertionError('called')",
        "Ours.state_dict (own_state)",
    ),
    "a paradigm": (
        "paradigm",
        "from gnnexp.paradigms.data_parallel import DataParallel as Base",
        "",
        "class Mine(Base):\n    def passes_float32(self, experiment):\n        return ''",
        "Mine.passes_float32 (refuses_rounded_rows)",
    ),
    "a trainer by inheritance": (
        "paradigm",
        "from gnnexp.paradigms.data_parallel import DataParallel as Base, DataParallelTrainer",
        "class Above(DataParallelTrainer):\n    def targets_of(self, schedule, epoch):\n        return None\n\n\n"
        "class Ours(Above):\n    pass",
        "class Mine(Base):\n    def trainer(self, job) -> Ours:\n        raise AssertionError('called')",
        "Above.targets_of (in a subclass of Shares)",
    ),
}


@pytest.mark.parametrize("case", REPLACED_MEMBERS)
def test_members_that_nothing_calls_any_more_are_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, *blocks, member = REPLACED_MEMBERS[case]
    problem = problem_of(group, "\n\n\n".join(blocks) + "\n", tmp_path, monkeypatch)
    assert member in problem.allowed and SPLIT in problem.fix


def test_a_rank_refuses_a_trainer_whose_class_the_paradigm_does_not_say() -> None:
    class Old(Trainer[int]):
        def load_state_dict(self, state: Any) -> None:
            raise AssertionError("called")

    class Mine(Paradigm):
        version = 1

        def plan(self, experiment: Any, facts: Any) -> Any:
            raise AssertionError("called")

        def trainer(self, job: Any) -> Trainer[Any]:
            Old.__abstractmethods__ = frozenset()
            return Old.__new__(Old)

    Mine.__abstractmethods__ = frozenset()
    job: Any = SimpleNamespace(experiment=SimpleNamespace(paradigm=Mine()))
    with pytest.raises(ConfigError, match=r"Old.load_state_dict \(own_state\)"):
        trainer_of(job)


def test_an_old_layer_is_refused_before_launch() -> None:
    class Old(SAGELayer):
        kind = "static"

    class Mine(SAGEOptions):
        def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Old:
            layer = super().make_layer(index, in_dim, out_dim, num_relations)
            layer.__class__ = Old
            assert isinstance(layer, Old)
            return layer

    (problem,) = Mine().check(setting_in(compose(["dataset=digits", "tracker=none"]).config))
    assert "Old.kind (traits)" in problem.allowed and SPLIT in problem.fix
