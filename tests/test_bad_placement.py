"""Placements that make no sense end with 2 before anything is launched, each with its fix, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.running.prepare import checked_config
from gnnexp.errors import ConfigError

QUIET = ["tracker=none", "hardware.device=cpu"]
MANY = ["hardware.threads=1", "sampler.threads=2"]
TWO, FOUR = ["hardware.workers=2"], ["hardware.workers=4"]
SPLIT, PUSH, DATA = ["paradigm=split_parallel"], ["paradigm=push_pull"], ["paradigm=data_parallel"]
CACHED, SHARDED = ["feature_store=cached"], ["feature_store=sharded"]
CAPACITY = ("feature_store.cache.capacity", "feature_store.cache.capacity=0.25")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder that must stay empty."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GNNEXP_CACHE", str(folder / "cache"))
    yield folder
    assert list(folder.iterdir()) == [], "nothing was made"


# What is typed; the key that is named; what the fix says.
BAD: dict[str, tuple[list[str], str, str]] = {
    "split: parts": ([*SPLIT, *FOUR, "partitioner.num_parts=2"], "partitioner.num_parts", "num_parts=auto"),
    "split: parts of a group": (
        [*SPLIT, *FOUR, "paradigm.group_size=2", "partitioner.num_parts=4"],
        "partitioner.num_parts",
        "num_parts=auto",
    ),
    "split: group size": ([*SPLIT, *FOUR, "paradigm.group_size=3"], "paradigm.group_size", "paradigm.group_size=null"),
    "split: group above ranks": ([*SPLIT, *TWO, "paradigm.group_size=4"], "paradigm.group_size", "group_size=null"),
    "split: no group": ([*SPLIT, *TWO, "paradigm.group_size=0"], "paradigm.group_size", "group_size=null"),
    "split: strata in groups": (
        [*SPLIT, *FOUR, "paradigm.group_size=2", "paradigm.assign=stratified"],
        "paradigm.assign",
        "paradigm.assign=owner",
    ),
    "split: assign": ([*SPLIT, *TWO, "paradigm.assign=even"], "paradigm.assign", "paradigm.assign="),
    "split: threads": ([*SPLIT, *TWO, *MANY], "sampler.threads", "set sampler.threads=1, or hardware.threads=2"),
    "data: topology, threads": (
        [*DATA, *TWO, *MANY, "sampler.topology=partitioned", "paradigm.assign=owner"],
        "sampler.threads",
        "sampler.threads=1",
    ),
    "data: no overlap, threads": ([*DATA, *MANY, "train.overlap=false"], "sampler.threads", "hardware.threads=2"),
    "data: batch by batch, threads": ([*DATA, *MANY, "sampler.prefetch=1"], "sampler.threads", "hardware.threads=2"),
    "push: threads": (
        [*PUSH, *TWO, "feature_store=sliced", "hardware.threads=2", "sampler.threads=7"],
        "sampler.threads",
        "set sampler.threads=2, or hardware.threads=3",
    ),
    "split: degrees in blocks": ([*SPLIT, *TWO, "model=gcn", "model.degrees=block"], "model.degrees", "degrees=graph"),
    "split: slices": ([*SPLIT, *TWO, "feature_store=sliced"], "feature_store", "feature_store=local"),
    "data: topology, targets anywhere": (
        [*DATA, *TWO, "sampler.topology=partitioned", "paradigm.assign=even"],
        "paradigm.assign",
        "paradigm.assign=owner",
    ),
    "data: topology, parts": (
        [*DATA, *TWO, "sampler.topology=partitioned", "paradigm.assign=owner", "partitioner.num_parts=3"],
        "partitioner.num_parts",
        "num_parts=auto",
    ),
    "data: rows, parts": (
        [*DATA, *TWO, "feature_store=partitioned", "partitioner.num_parts=3"],
        "partitioner.num_parts",
        "num_parts=auto",
    ),
    "reference: topology": (
        [*TWO, "paradigm=dgl_reference", "sampler.topology=partitioned"],
        "sampler.topology",
        "sampler.topology=replicated",
    ),
    "metis: imbalance": (
        [*SPLIT, *TWO, "partitioner=metis", "partitioner.imbalance=1e300"],
        "partitioner.imbalance",
        "partitioner.imbalance=0.03",
    ),
    "split: vertex-cut": ([*SPLIT, *TWO, "partitioner=libra"], "partitioner", "partitioner=metis"),
    "data: topology, vertex-cut": (
        [*DATA, *TWO, "sampler.topology=partitioned", "paradigm.assign=owner", "partitioner=libra"],
        "partitioner",
        "partitioner=metis",
    ),
    "data: rows, vertex-cut": (
        [*DATA, *TWO, "feature_store=partitioned", "partitioner=libra"],
        "partitioner",
        "partitioner=metis",
    ),
    "libra: order": (["partitioner=libra", "partitioner.order=shuffle"], "partitioner.order", "shuffled"),
    "data: slices": ([*DATA, *TWO, "feature_store=sliced"], "feature_store", "paradigm=push_pull"),
    "push: rows": ([*PUSH, *TWO], "feature_store", "feature_store=sliced"),
    "push: placed rows": ([*PUSH, *TWO, "feature_store=partitioned"], "feature_store", "feature_store=sliced"),
    "push: a model without phases": ([*PUSH, *TWO, "feature_store=sliced", "model=sage_pool"], "model", "model=sage"),
    "push: topology": (
        [*PUSH, *TWO, "feature_store=sliced", "sampler.topology=partitioned"],
        "sampler.topology",
        "sampler.topology=replicated",
    ),
    "cache: fewer than none": ([*CACHED, "feature_store.cache.capacity=-1"], *CAPACITY),
    "cache: more than all": ([*CACHED, "feature_store.cache.capacity=1.5"], *CAPACITY),
    "cache: in words": ([*CACHED, "feature_store.cache.capacity=lots"], *CAPACITY),
    "cache: sharded in words": ([*SHARDED, *TWO, "feature_store.cache.capacity=lots"], *CAPACITY),
    "cache: policy": ([*CACHED, "feature_store.cache.policy=hot"], "feature_store.cache.policy", "degree"),
    "cache: of whom": ([*CACHED, "feature_store.cache.of=mine"], "feature_store.cache.of", "all"),
    "cache: epochs": ([*CACHED, "feature_store.cache.epochs=0"], "feature_store.cache.epochs", "cache.epochs=10"),
    "cache: clique": ([*SHARDED, *FOUR, "feature_store.cache.clique=3"], "feature_store.cache.clique", "clique=null"),
    "cache: clique across groups": (
        [*SPLIT, *SHARDED, *FOUR, "paradigm.group_size=2", "feature_store.cache.clique=4"],
        "feature_store.cache.clique",
        "clique=null",
    ),
    "cache: nobody's clique": (
        [*SHARDED, *TWO, "feature_store.cache.clique=0"],
        "feature_store.cache.clique",
        "clique=null",
    ),
    "cache: owned, parts": (
        [*CACHED, *TWO, "feature_store.cache.of=owned", "partitioner.num_parts=4"],
        "partitioner.num_parts",
        "num_parts=auto",
    ),
    "stored: missing": (
        ["partitioner=stored", "partitioner.path=/no/such/place", *SPLIT, *TWO],
        "partitioner.path",
        "gnnexp partition",
    ),
    "stored: missing, unused": (["partitioner=stored", "partitioner.path=nowhere"], "partitioner.path", "metis"),
    "presampled: epochs": (
        ["partitioner=presampled", *SPLIT, *TWO, "partitioner.epochs=0"],
        "partitioner.epochs",
        "partitioner.epochs=10",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_placement_is_one_problem_with_its_fix(name: str) -> None:
    typed, key, fix = BAD[name]
    with pytest.raises(ConfigError) as caught:
        checked_config([*QUIET, *typed], None)
    assert [problem.key for problem in caught.value.problems] == [key], caught.value
    (problem,) = caught.value.problems
    assert fix in problem.fix
    assert problem.allowed
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["split: parts", "cache: in words", "stored: missing"])
def test_the_command_line_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed, key, fix = BAD[name]
    assert run_command(["run", *QUIET, *typed]) == 2
    said = capsys.readouterr().err
    assert f"{key}=" in said and fix in said and "1 configuration problem" in said
    assert "Traceback" not in said


GOOD: dict[str, list[str]] = {
    "split": [*SPLIT, *FOUR],
    "split, as many parts as ranks": [*SPLIT, *FOUR, "partitioner.num_parts=4"],
    "split in groups": [*SPLIT, *FOUR, "paradigm.group_size=2", "partitioner.num_parts=2"],
    "split on one rank with threads": [*SPLIT, "sampler.threads=2"],
    "split over strata": [*SPLIT, *TWO, "paradigm.assign=stratified"],
    "split gcn": [*SPLIT, *TWO, "model=gcn"],
    "data with degrees in blocks": [*DATA, *TWO, "model=gcn", "model.degrees=block"],
    "data on a placed topology": [*DATA, *TWO, "sampler.topology=partitioned", "paradigm.assign=owner"],
    "data on placed rows": [*DATA, *TWO, "feature_store=partitioned"],
    "data with unused parts": [*DATA, *TWO, "partitioner.num_parts=3"],
    "data with an unused vertex-cut": [*DATA, *TWO, "partitioner=libra"],
    "split on one rank with one core and two batches": [*SPLIT, *MANY],
    "data with one core and two batches": [*DATA, *TWO, *MANY],
    "data with threads": [*DATA, *TWO, "sampler.threads=2"],
    "data on a placed topology with threads": [
        *DATA,
        *TWO,
        "sampler.topology=partitioned",
        "paradigm.assign=owner",
        "sampler.threads=2",
    ],
    "data on placed rows with threads": [*DATA, *TWO, "feature_store=partitioned", "sampler.threads=2"],
    "split with threads": [*SPLIT, *TWO, "sampler.threads=2"],
    "push with threads": [*PUSH, *TWO, "feature_store=sliced", "sampler.threads=2"],
    "a sharded cache with threads": [*SHARDED, *TWO, "sampler.threads=2"],
    "push": [*PUSH, *TWO, "feature_store=sliced"],
    "push gat": [*PUSH, *TWO, "feature_store=sliced", "model=gat"],
    "one row": [*CACHED, "feature_store.cache.capacity=1"],
    "all rows": [*CACHED, "feature_store.cache.capacity=1.0"],
    "bytes": [*CACHED, "feature_store.cache.capacity=512MiB"],
    "cliques": [*SHARDED, *FOUR, "feature_store.cache.clique=2"],
    "presampled": ["partitioner=presampled", *SPLIT, *TWO],
}


@pytest.mark.parametrize("name", GOOD)
def test_their_neighbours_are_right(name: str) -> None:
    """What the fixes say, and what is next to a mistake, is accepted: the refusals are no wider than they should be."""
    checked_config([*QUIET, *GOOD[name]], None)


TOGETHER = [
    (
        [
            *SPLIT,
            *FOUR,
            "partitioner.num_parts=2",
            "sampler.threads=2",
            "hardware.threads=1",
            "model=gcn",
            "model.degrees=block",
            "feature_store=sliced",
        ],
        {"partitioner.num_parts", "sampler.threads", "model.degrees", "feature_store"},
    ),
    (
        [
            *SPLIT,
            *FOUR,
            "paradigm.group_size=3",
            "sampler.threads=2",
            "hardware.threads=1",
            *CACHED,
            "feature_store.cache.capacity=lots",
            "feature_store.cache.epochs=0",
        ],
        {"feature_store.cache.capacity", "feature_store.cache.epochs"},  # conflicts come when each choice is right
    ),
    (
        [*PUSH, *TWO, "model=sage_pool", "sampler.topology=partitioned", *MANY, "sampler.prefetch=1"],
        {"feature_store", "model", "sampler.topology", "sampler.threads"},
    ),
    (
        [
            *DATA,
            *FOUR,
            "sampler.topology=partitioned",
            "paradigm.assign=even",
            "partitioner.num_parts=3",
            *SHARDED,
            "feature_store.cache.clique=3",
            "sampler.threads=2",
            "hardware.threads=1",
        ],
        {"paradigm.assign", "partitioner.num_parts", "feature_store.cache.clique", "sampler.threads"},
    ),
    (
        [
            "partitioner=stored",
            "partitioner.path=/no/such/place",
            *SPLIT,
            *FOUR,
            "paradigm.group_size=3",
            "sampler.threads=2",
            "hardware.threads=1",
        ],
        {"partitioner.path"},
    ),
    (
        [
            "partitioner=presampled",
            "partitioner.epochs=0",
            "partitioner.imbalance=0",
            *SPLIT,
            *FOUR,
            *CACHED,
            "feature_store.cache.capacity=-1",
            "feature_store.cache.epochs=0",
            "train.epochs=0",
        ],
        {
            "partitioner.epochs",
            "partitioner.imbalance",
            "feature_store.cache.capacity",
            "feature_store.cache.epochs",
            "train.epochs",
        },
    ),
    (
        [*SHARDED, *TWO, "feature_store.cache.capacity=lots", "feature_store.cache.clique=0"],
        {"feature_store.cache.capacity", "feature_store.cache.clique"},
    ),
]


@pytest.mark.parametrize(("typed", "keys"), TOGETHER)
def test_several_are_reported_at_once(typed: list[str], keys: set[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_config([*QUIET, *typed], None)
    assert sorted(problem.key for problem in caught.value.problems) == sorted(keys)
    assert all(problem.fix for problem in caught.value.problems)
