"""Run directories as a worker and a launcher leave them, for the tests of what reads them."""

import json
from pathlib import Path


def write_job(run_dir: Path, uid: str = "uid-1", **provenance: object) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    config = {
        "dataset": {"_target_": "gnnexp.datasets.published.digits.Digits", "name": "digits"},
        "model": {"_target_": "gnnexp.models.sage.SAGE", "hidden": 64},
        "train": {"epochs": 3, "batch_size": None},
        "hardware": {"workers": 2},
        "tracker": {"_target_": "gnnexp.trackers.none.NoTracker"},
        "sampler": {"fanouts": [5, 5]},
        "system": "dgl",
        "name": None,
        "seed": 0,
    }
    provenance = {
        "uid": uid,
        "choices": {"dataset": "digits", "model": "sage", "paradigm": "data_parallel"},
        "code_version": "0.1.0",
        "reproduce": "gnnexp run",
        "sweep": None,
        **provenance,
    }
    job = {"schema": 1, "config": config, "provenance": provenance, "graph": "/g", "partition": None}
    (run_dir / "job.json").write_text(json.dumps(job))
    (run_dir / "config.yaml").write_text("seed: 0\n")
    (run_dir / "logs").mkdir(exist_ok=True)
    (run_dir / "logs" / "rank_0.log").write_text("fine\n")


def metrics_of(epoch: int) -> dict[str, float]:
    times = {
        "sample_s": 0.1,
        "load_s": 0.2,
        "forward_s": 0.15,
        "backward_s": 0.25,
        "fb_s": 0.4,
        "sync_s": 0.05,
        "update_s": 0.01,
        "wait_s": 0.02,
        "unaccounted_s": 0.001,
        "epoch_s": 0.8,
    }
    factor = 10.0 if epoch == 0 else 1.0  # the first epoch warms up
    return {
        "loss/train": 2.0 / (epoch + 1),
        **{f"time/{name}": factor * value for name, value in times.items()},
        "comm/bytes_gradients": 1000.0,
        "comm/bytes_features": 0.0,
        "acc/val": 0.8 + 0.01 * epoch,
        "acc/test": 0.7 + 0.01 * epoch,
    }


def write_epochs(run_dir: Path, count: int) -> None:
    lines = [json.dumps({"epoch": n, "time": 1000.0 + n, "metrics": metrics_of(n)}) + "\n" for n in range(count)]
    (run_dir / "epochs.jsonl").write_text("".join(lines))


def write_result(run_dir: Path, status: str = "finished", reason: str = "", **more: object) -> None:
    job = json.loads((run_dir / "job.json").read_text())
    lines = (run_dir / "epochs.jsonl").read_text().splitlines() if (run_dir / "epochs.jsonl").exists() else []
    epochs = [json.loads(line) for line in lines]
    summary = {"acc/test": epochs[-1]["metrics"]["acc/test"]} if epochs else {}
    result = {
        "schema": 1,
        "config": job["config"],
        "provenance": job["provenance"],
        "partition": None,
        "epochs": epochs,
        "summary": summary,
        "status": status,
        "reason": reason,
        **more,
    }
    (run_dir / "result.json").write_text(json.dumps(result))
