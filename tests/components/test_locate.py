"""Components that were written before 0.2.0 are refused by name, with the page that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.components.locate import SPLIT, component
from gnnexp.errors import Problem
from gnnexp.experiment.kinds import kind_of
from gnnexp.feature_stores.cache import CacheOptions

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
