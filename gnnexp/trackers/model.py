"""The best model of a run as an MLflow model: files of the run, and the module of gnnexp that loads them. No pickle.

`mlflow.pyfunc.load_model("runs:/<id>/model")` calls `gnnexp.api.pyfunc`, which makes the model as `gnnexp.load` does.
The stored checkpoint also has the state of the optimizer: it is the folder that the run wrote, so its checksums hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.experiment.build import train_of
from gnnexp.record.records import JOB_FILE, RESULT_FILE, load_result

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOADER = "gnnexp.api.pyfunc"
_CHECKPOINTS, _BEST = "checkpoints", "best"
_FOLDER, _DATA = "model", "run"


def log_model(client: MlflowClient, run_id: str, run_dir: Path) -> bool:
    """Store the best model of a finished run as the artifact `model`; repeating this does no harm.

    Args:
        client: client of the store.
        run_id: the run in the store.
        run_dir: the run directory.

    Returns:
        Whether a model was stored. A run without a kept best model (`best` in `result.json`) has none.
    """
    result = load_result(run_dir)
    checkpoint = (run_dir / _CHECKPOINTS / _BEST).resolve()
    kept = (result.get("best") or {}).get("checkpoint") and checkpoint.parent == (run_dir / _CHECKPOINTS).resolve()
    if result["status"] != "finished" or not kept:
        return False
    place = run_dir / ".model"  # on the same disk as the checkpoint, whose files are linked
    shutil.rmtree(place, ignore_errors=True)  # a killed delivery may have left it
    try:
        model, data = place / _FOLDER, place / _DATA
        _link(run_dir, checkpoint, data)
        _save(model, data, str(train_of(result["config"]).dtype), result)
        for file in sorted(path for path in model.rglob("*") if path.is_file()):
            # One request for each file, so that each has its own time limit.
            client.log_artifact(run_id, str(file), str(Path(_FOLDER) / file.parent.relative_to(model)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return True


def _link(run_dir: Path, checkpoint: Path, data: Path) -> None:
    """Make a run directory of the files that `gnnexp.load` reads."""
    shutil.copytree(checkpoint, data / _CHECKPOINTS / checkpoint.name, copy_function=_link_file)
    for name in (JOB_FILE, RESULT_FILE):
        _link_file(str(run_dir / name), str(data / name))


def _link_file(source: str, target: str) -> None:
    """A second name for a file; a copy on file systems without hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _save(model: Path, data: Path, dtype: str, result: Mapping[str, Any]) -> None:
    """Write MLflow's description and the data. Requirements are given: otherwise MLflow would load the model."""
    import mlflow.pyfunc
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, Schema, TensorSpec

    signature = ModelSignature(Schema([ColSpec("long", "vertex")]), Schema([TensorSpec(np.dtype(dtype), (-1, -1))]))
    mlflow.pyfunc.save_model(
        str(model),
        loader_module=_LOADER,
        data_path=str(data),
        signature=signature,
        pip_requirements=[f"gnnexp=={version('gnnexp')}"],
        metadata={"epoch": result["best"]["epoch"], "summary": result["summary"]},
    )
