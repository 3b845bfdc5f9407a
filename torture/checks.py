"""What must hold of a run that has finished, whatever happened on its way: compared with an undisturbed one.

Every function returns problems in words; none means that all is right.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_QUALITY = ("/train", "/val", "/test")


def run_problems(run_dir: Path, undisturbed: Path, epochs: int) -> list[str]:
    """Everything that is compared on disk between a finished run and an undisturbed run of the same configuration."""
    found = result_problems(run_dir, undisturbed, epochs)
    found += curve_problems(run_dir, undisturbed, epochs)
    found += checkpoint_problems(run_dir, undisturbed, epochs)
    found += leftover_problems(run_dir)
    return found + lock_problems(run_dir)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of `epochs.jsonl`; unlike gnnexp's reader, this one takes no line that is not whole.

    Raises:
        ValueError: a line is no JSON, or the last one does not end.
    """
    text = file.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError("its last line does not end")
    return [json.loads(line) for line in text.splitlines()]


def result_problems(run_dir: Path, undisturbed: Path, epochs: int) -> list[str]:
    """`result.json`: finished, every epoch once, the same best epoch."""
    try:
        result, expected = (json.loads((path / "result.json").read_text()) for path in (run_dir, undisturbed))
    except (OSError, ValueError) as error:
        return [f"result.json: {error}"]
    found = [] if result["status"] == "finished" else [f"result.json: {result['status']}: {result.get('reason')}"]
    numbers = [line["epoch"] for line in result["epochs"]]
    if numbers != list(range(epochs)):
        found.append(f"result.json: epochs {numbers}")
    if result["best"] != expected["best"]:
        found.append(f"result.json: best {result['best']}, undisturbed {expected['best']}")
    return found


def curve_problems(run_dir: Path, undisturbed: Path, epochs: int) -> list[str]:
    """`epochs.jsonl`: every epoch once and in order; losses of all steps and figures of quality the same bits."""
    try:
        lines, expected = (read_lines(path / "epochs.jsonl") for path in (run_dir, undisturbed))
    except (OSError, ValueError) as error:
        return [f"epochs.jsonl: {error}"]
    numbers = [line["epoch"] for line in lines]
    if numbers != list(range(epochs)):
        return [f"epochs.jsonl: epochs {numbers}"]
    wrong = [line["epoch"] for line, other in zip(lines, expected, strict=True) if _same(line) != _same(other)]
    return [f"losses or figures of epochs {wrong} differ from the undisturbed run"] if wrong else []


def _same(line: Mapping[str, Any]) -> str:
    """What must be equal bit by bit, as text: NaN is equal to itself there."""
    quality = {name: value for name, value in line["metrics"].items() if name.endswith(_QUALITY)}
    return json.dumps([line["losses"], quality], sort_keys=True)


def checkpoint_problems(run_dir: Path, undisturbed: Path, epochs: int) -> list[str]:
    """Checkpoints: readable, with right checksums; the last one and the best one have the undisturbed parameters."""
    from gnnexp.errors import DataError
    from gnnexp.training.checkpoint import FOLDER, checkpoint_folders, open_checkpoint

    found = []
    for folder in checkpoint_folders(run_dir):
        try:
            opened = open_checkpoint(folder)
            opened.verify()
            opened.shared()
        except DataError as error:
            found.append(f"checkpoint {folder.name}: {error}")
    last, best = _last(run_dir), run_dir / FOLDER / "best"
    if last is None or not last.name.startswith(f"{epochs:08d}-"):
        return [*found, f"the last checkpoint is {last and last.name}, not that of epoch {epochs}"]
    expected = undisturbed / FOLDER / "best"
    if best.is_symlink() != expected.is_symlink() or (best.is_symlink() and best.readlink() != expected.readlink()):
        return [*found, f"checkpoints/best: {_target(best)}, undisturbed {_target(expected)}"]
    pairs = [(last, _last(undisturbed))] + ([(best.resolve(), expected.resolve())] if best.is_symlink() else [])
    if found:  # one of them cannot be read
        return found
    return [
        f"parameters of checkpoint {mine.name} differ from the undisturbed run"
        for mine, other in pairs
        if other is None or not _equal(_contents(mine), _contents(other))
    ]


def _last(run_dir: Path) -> Path | None:
    from gnnexp.training.checkpoint import checkpoint_folders

    return next(iter(checkpoint_folders(run_dir)), None)


def _target(link: Path) -> str:
    return str(link.readlink()) if link.is_symlink() else "no link"


def _contents(folder: Path) -> list[object]:
    from gnnexp.training.checkpoint import open_checkpoint

    opened = open_checkpoint(folder)
    return [opened.shared(), *(opened.of_rank(rank)["parameters"] for rank in range(opened.num_ranks))]


def _equal(one: object, other: object) -> bool:
    """Whether two trees of tensors and plain values are the same."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124  NaN


def leftover_problems(folder: Path) -> list[str]:
    """Temporary files and half-made folders that nobody will ever remove."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if _is_temporary(path.name))
    return (
        [f"left over: {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")]
        if names
        else []
    )


def _is_temporary(name: str) -> bool:
    hidden_checkpoint = name.startswith(".") and name[1:9].isdigit()
    return name.endswith((".tmp", ".removed")) or name.startswith(".best.") or hidden_checkpoint


def lock_problems(run_dir: Path) -> list[str]:
    """Nobody holds the run any more."""
    with (run_dir / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ["its lock is held by a process"]
    return []


def said_problems(text: str, command: str) -> list[str]:
    """What a command said: a traceback is never for a user."""
    place = text.find("Traceback (most recent call last)")
    return [] if place < 0 else [f"traceback of `gnnexp {command}`: …{text[max(0, place - 200) : place + 2500]}"]


# --- the tracker's store ---------------------------------------------------------------------------------------------
def store_problems(store: Path, run_dirs: Sequence[Path]) -> list[str]:
    """MLflow's SQLite file: one run for every run directory and none besides, each metric of each epoch once."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30) as database:
        rows = database.execute(
            "select run_uuid, value from tags where key = 'gnnexp.uid' and run_uuid not in "
            "(select run_uuid from tags where key = 'gnnexp.sweep') and run_uuid in "
            "(select run_uuid from runs where lifecycle_stage = 'active')"
        ).fetchall()  # a report's
        runs: dict[str, list[str]] = {}
        for run, uid in rows:
            runs.setdefault(uid, []).append(run)
        found = []
        for run_dir in run_dirs:
            uid = json.loads((run_dir / "job.json").read_text())["provenance"]["uid"]
            mine = runs.pop(uid, [])
            if len(mine) != 1:
                found.append(f"MLflow has {len(mine)} runs of {run_dir.name}")
            for run in mine:
                found += _one_run(database, run, read_lines(run_dir / "epochs.jsonl"))
    database.close()
    return found + [f"MLflow has a run of nobody: {uid}" for uid in runs]


def _one_run(database: sqlite3.Connection, run: str, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    ((status, uri),) = database.execute("select status, artifact_uri from runs where run_uuid = ?", (run,)).fetchall()
    found = [] if status == "FINISHED" else [f"MLflow says {status}"]
    rows = database.execute(
        "select key, step, value from metrics where run_uuid = ? and key not like 'summary/%'", (run,)
    ).fetchall()
    doubled = [name for name, count in Counter((key, step) for key, step, _ in rows).items() if count > 1]
    if doubled:
        found.append(f"MLflow has {len(doubled)} metric steps more than once: {doubled[:3]}")
    losses = {step: value for key, step, value in rows if key == "loss/train"}
    if losses != {line["epoch"]: line["metrics"]["loss/train"] for line in lines}:
        found.append(f"MLflow's loss/train is not the record's: steps {sorted(losses)}")
    return found + (_artifacts(Path(uri.removeprefix("file://"))) if uri.startswith("file://") else [])


def _artifacts(folder: Path) -> list[str]:
    missing = [name for name in ("config.yaml", "result.json", "logs") if not (folder / name).exists()]
    return [f"MLflow has no {', '.join(missing)} of it"] if missing else []


def report_problems(store: Path, sweep: str) -> list[str]:
    """The report of a sweep is one run in the store, however often it was made; deleted twins are none."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30) as database:
        ((count,),) = database.execute(
            "select count(*) from tags where key = 'gnnexp.sweep' and value = ? and run_uuid "
            "in (select run_uuid from runs where lifecycle_stage = 'active')",
            (sweep,),
        ).fetchall()
    database.close()
    return [] if count == 1 else [f"MLflow has {count} reports of the sweep"]


def orphan_problems(left: Iterable[str], seconds: float) -> list[str]:
    """Processes that outlived their command."""
    names = list(left)
    return [f"{len(names)} processes live {seconds:.0f} s on: {'; '.join(names)}"] if names else []
