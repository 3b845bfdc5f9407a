"""The files that ranks write about the whole run: where they ran, which code they executed, and `result.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnexp.comm.communicator import Communicator
from gnnexp.experiment.build import train_of
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.provenance.code import RunCode, package_digest
from gnnexp.provenance.machine import read_node, this_node
from gnnexp.provenance.recorded import as_executed
from gnnexp.record.attempts import RANKS, codes_of, nodes_of, note, read_attempts
from gnnexp.record.records import RESULT_FILE, read_epochs, summarize, write_json
from gnnexp.training.best import best_of, describe_best, ending
from gnnexp.training.checkpoint import Position, checkpoint_folders


def note_ranks(run_dir: Path, comm: Communicator, code: RunCode) -> None:
    """Note the machines on which the ranks of this attempt run, and the code that they execute.

    Measured seconds are valid for one kind of machine. Code may have been edited after the run was submitted, and
    nodes of a cluster may see the edit at different times. Each version of the code gets a line. A result of several
    versions is not a result of any of them.
    """
    told = comm.gather_objects((this_node().to_json(), replace(code, package=package_digest()).to_json()))
    ranks = [(read_node(node), code) for node, code in told]
    if comm.rank == 0:
        from_start = not checkpoint_folders(run_dir) and not read_epochs(run_dir)
        codes = [code for place, (_, code) in enumerate(ranks) if code not in [other for _, other in ranks[:place]]]
        for place, version in enumerate(codes):
            nodes = dict.fromkeys(node for node, code in ranks if code == version)
            note(
                run_dir,
                RANKS,
                nodes=[node.to_json() for node in nodes],
                code=version,
                from_start=from_start and place == 0,
            )


def write_result(run_dir: Path, request: Mapping[str, Any], job: Job, trainer: Trainer[Any]) -> None:
    """Write `result.json` of a finished run."""
    chosen = {**job.facts, **_input_rows(job), "draws": _draws(job)}
    write_record(
        run_dir,
        request,
        job.task.primary_metric,
        chosen=chosen,
        paradigm={"exact": job.plan.is_exact, "approximates": job.plan.approximates, **trainer.facts()},
        notes=job.graph.notes,
    )


def _input_rows(job: Job) -> dict[str, str]:
    """What the first layer's kernels do with rows of features; empty if the layer takes a matrix of a batch's rows."""
    return {"input_rows": job.stored_rows} if job.stored_rows else {}


def write_record(
    run_dir: Path,
    request: Mapping[str, Any],
    primary: str,
    *,
    chosen: Mapping[str, Any],
    paradigm: Mapping[str, Any],
    notes: Sequence[str],
) -> None:
    """Write `result.json` from the files of a finished run.

    Args:
        run_dir: the run directory.
        request: `job.json`.
        primary: the main metric, without its split.
        chosen: choices made for the user, with reasons.
        paradigm: whether training was exact, and facts of the paradigm.
        notes: notes of the data.
    """
    epochs, attempts = read_epochs(run_dir), read_attempts(run_dir)
    summary = summarize(epochs, primary)
    provenance = as_executed(request.get("provenance", {}), codes_of(attempts))
    write_json(
        run_dir / RESULT_FILE,
        {
            "schema": 1,
            "config": request["config"],
            "provenance": {**provenance, "chosen": dict(chosen)},
            "partition": request.get("partition"),
            "quality": request.get("quality", {}),
            "presampled": request.get("presampled", []),
            "paradigm": dict(paradigm),
            "notes": list(notes),
            "nodes": nodes_of(attempts),
            "attempts": attempts,
            "epochs": epochs,
            "summary": summary,
            "best": describe_best(run_dir, epochs, summary),
            "status": "finished",
            "ended": ending(train_of(request["config"]), Position(len(epochs)), best_of(epochs, primary)),
            "reason": "",
        },
    )


def _draws(job: Job) -> str:
    """What random draws depend on: whether one rank and N ranks draw the same global batch."""
    if not job.sampler.options.exact_key:
        return "by the sampler's own generator: another number of ranks draws other neighbours"
    if job.sampler.options.key == "micro":
        return "by seed, epoch, batch, rank, hop and vertex: another number of ranks draws other neighbours"
    return "by seed, epoch, batch, hop and vertex: the same for any number of ranks"
