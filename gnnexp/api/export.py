"""`gnnexp export`: records of sweeps as one file, or the model of a run for PyTorch Geometric."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from gnnexp.cli.running.folders import new_file_problems
from gnnexp.cli.sweeping.processes import STATES
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.disk import write_bytes
from gnnexp.files.regular import is_file


def main(options: argparse.Namespace) -> int:
    """Write what `--to` names."""
    if options.to == "records":
        ConfigError.raise_all(
            [
                Problem(
                    "export",
                    name,
                    "is a run, and records are those of sweeps",
                    f"gnnexp export {name} --to pyg, for its model",
                )
                for name in options.names
                if not is_file(STATES / f"{name}.json") and is_file(Path(name, "job.json"))
            ]
        )
        from gnnexp.cli.commands.archives import export

        return export(options)
    return _export_model(options)


def _export_model(options: argparse.Namespace) -> int:
    """Write a state_dict, and next to it a Python module with the class of the model."""
    out = Path(options.out or "model.pt")
    code = out.with_suffix(".py")
    problems = [*new_file_problems("--out", out), *new_file_problems("--out", code)]
    if len(options.names) != 1:
        problems.append(
            Problem(
                "export",
                " ".join(options.names),
                "--to pyg takes one run",
                f"gnnexp export {options.names[0]} --to pyg",
            )
        )
    if out.suffix != ".pt":
        problems.append(Problem("--out", str(out), "must end with .pt", f"--out {out}.pt"))
    if not problems and is_file(code) and not _is_ours(code):
        problems.append(
            Problem(
                "--out",
                str(out),
                f"the code of the model comes next to it, and {code} is a file that gnnexp did not write",
                "--out <another name>.pt",
            )
        )
    ConfigError.raise_all(problems)
    import torch

    from gnnexp.api.pyg_module import exported
    from gnnexp.api.trained import load
    from gnnexp.cli.runs import named_run

    model = exported(load(named_run(options.names[0]), trust=options.trust), out.stem)
    content = io.BytesIO()
    torch.save(model.values, content)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(code, model.code.encode())
    write_bytes(out, content.getvalue())
    print(f"{len(model.values)} tensors: {out}; the class of the model: {code}")
    return 0


def _is_ours(path: Path) -> bool:
    from gnnexp.api.pyg_module import MARK

    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()
