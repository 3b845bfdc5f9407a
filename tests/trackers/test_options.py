"""The options of the tracker: what a user asks for, and what is refused before a run is launched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folder import metrics_of, write_epochs, write_job, write_result

from gnnexp.errors import ConfigError
from gnnexp.trackers import mlflow as module
from gnnexp.trackers.delivery import read_delivery
from gnnexp.trackers.mlflow import MlflowTracker


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> str:
    return mlflow_store(tmp_path_factory.mktemp("options"))


def delivered(store: str, run: Path, **options: Any) -> Any:
    """The run in the store, delivered with these options."""
    from mlflow import MlflowClient

    write_job(run, uid=str(run), **options.pop("provenance", {}))
    write_epochs(run, 3)
    write_result(run)
    assert MlflowTracker(store, **options).deliver(run)
    return MlflowClient(tracking_uri=store).get_run(read_delivery(run, store).run_id)


def test_the_experiment_is_the_configurations_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    assert MlflowTracker().experiment == "gnnexp"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    assert MlflowTracker().experiment == "theirs"
    assert MlflowTracker(experiment="mine").experiment == "mine"


def test_detail_tags_and_target(tmp_path: Path, store: str) -> None:
    few = delivered(store, tmp_path / "few", tags={"owner": "me", "my.grant": "7"}, target=0.82)
    assert few.data.tags["owner"] == "me" and few.data.tags["my.grant"] == "7" and few.data.tags["kind"] == "run"
    assert few.data.metrics["main/time_to_target_s"] == pytest.approx(9.6)
    assert "time/fb_s" not in few.data.metrics
    every = delivered(store, tmp_path / "every", detail="full")
    assert set(every.data.metrics) >= set(metrics_of(0)) | {"time/cumulative_s", "main/test"}
    assert "main/time_to_target_s" not in every.data.metrics


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"tags": {"status": "x"}}, ["tracker.tags.status"]),
        ({"tags": {"mlflow.user": "x"}}, ["tracker.tags.mlflow.user"]),
        ({"tags": {"gnnexp.uid": "x"}}, ["tracker.tags.gnnexp.uid"]),
        ({"tags": {"a/b": "x"}}, ["tracker.tags.a/b"]),
        ({"tags": {"": "x"}}, ["tracker.tags."]),
        ({"tags": {"n": 3}}, ["tracker.tags.n"]),
        ({"tags": {"n": None}}, ["tracker.tags.n"]),
        ({"tags": {3: "x" * 7000}}, ["tracker.tags.3"]),
        ({"target": 90.0}, ["tracker.target"]),
        ({"target": 0.0}, ["tracker.target"]),
        (
            {"target": float("nan"), "timeout_s": -1, "uri": "ftp://x", "tags": {"a b": "fine", "seed": 0}},
            ["tracker.uri", "tracker.timeout_s", "tracker.target", "tracker.tags.seed", "tracker.tags.seed"],
        ),
    ],
)
def test_all_mistakes_are_reported_together(options: dict[str, Any], keys: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        MlflowTracker(**options)
    assert [problem.key for problem in caught.value.problems] == keys


@pytest.mark.parametrize("prepared", [True, False])
def test_the_source_of_the_data_is_known_to_mlflow(tmp_path: Path, store: str, *, prepared: bool) -> None:
    import mlflow

    run = tmp_path / "run"
    write_job(run, uid=str(run), dataset_key=("e" if prepared else "f") * 64)
    job = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps(job | {"graph": str(tmp_path) if prepared else None}))
    MlflowTracker(store).deliver(run)
    (data,) = mlflow.MlflowClient(tracking_uri=store).get_run(read_delivery(run, store).run_id).inputs.dataset_inputs
    source = mlflow.data.get_source(data)
    if prepared:
        assert source.load() == str(tmp_path)
    else:
        assert "Digits" in json.dumps(source.to_dict())


def test_a_run_that_an_earlier_version_began_gets_the_new_figures(tmp_path: Path, store: str) -> None:
    """The earlier version sent metrics under their recorded names, and parameters that are null."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    run, client = tmp_path / "run", MlflowClient(tracking_uri=store)
    write_job(run, uid=str(run))
    write_epochs(run, 2)
    tracker = MlflowTracker(store)
    tracker._connect()
    made = client.create_run(tracker._experiment_id, tags={"gnnexp.uid": str(run), "status": "running"}).info.run_id
    for epoch in range(2):
        client.log_batch(
            made,
            [Metric(name, value, int((1000.0 + epoch) * 1000), epoch) for name, value in metrics_of(epoch).items()],
            [Param("train.batch_size", "null")],
        )
    (run / "delivery.json").write_text(json.dumps({"uri": store, "run_id": made, "epochs": 2}))
    write_epochs(run, 3)
    write_result(run)
    assert tracker.deliver(run)
    history = {
        name: sorted(one.step for one in client.get_metric_history(made, name))
        for name in ("loss/train", "time/cumulative_s", "main/val")
    }
    assert set(map(tuple, history.values())) == {(0, 1, 2)}
    assert client.get_run(made).info.status == "FINISHED"


def test_the_load_of_the_machine_is_sampled_while_a_local_run_goes_on(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    said = "0, 45, 1000, [N/A]\n1, 7, 2000, 120.5"
    monkeypatch.setattr("gnnexp.measure.machine_load.output_of", lambda command: said)
    monkeypatch.setattr(module, "PERIOD_S", 0.0)
    names: dict[str, set[str]] = {}
    for launcher in ("local.LocalLauncher", "slurm.SlurmLauncher"):
        run = tmp_path / launcher
        write_job(run, uid=str(run))
        job = json.loads((run / "job.json").read_text())
        job["config"]["hardware"]["launcher"] = {"_target_": f"gnnexp.launchers.{launcher}"}
        (run / "job.json").write_text(json.dumps(job))
        tracker = MlflowTracker(store, system=True)
        for _ in range(2):
            tracker.deliver(run, end=False)
        found = MlflowClient(tracking_uri=store).get_run(read_delivery(run, store).run_id).data.metrics
        names[launcher] = set(found)
        if found:
            assert found["system/gpu_1_power_usage_watts"] == 120.5
            assert found["system/gpu_0_memory_usage_megabytes"] == pytest.approx(1048.576)
    assert names["slurm.SlurmLauncher"] == set(), "the login node is not where it trains"
    assert names["local.LocalLauncher"] == {
        "system/cpu_utilization_percentage",
        "system/system_memory_usage_megabytes",
        "system/system_memory_usage_percentage",
        "system/gpu_0_utilization_percentage",
        "system/gpu_0_memory_usage_megabytes",
        "system/gpu_1_utilization_percentage",
        "system/gpu_1_memory_usage_megabytes",
        "system/gpu_1_power_usage_watts",
    }
