"""The house's rules, by syntax trees and by one walk: who reads configurations, what may be a loose mapping, names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from benchmarks.members import MOST, base_classes
from benchmarks.names import saying_nothing, several

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gnnexp"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
# The rooms that read configurations.
READERS = ("config/", "experiment/build.py")
# Rooms and modules in which a mapping from text to anything is a record, JSON, a file's content, or state.
RECORDS = {
    "api/": "records of runs, and state of checkpoints",
    "record/": "records of runs",
    "reports/": "records of runs",
    "trackers/": "records of runs",
    "planning/": "records of runs that are scaled to other graphs and machines",
    "provenance/": "digests of configurations as JSON, and recorded provenance",
    "cli/console.py": "lines of records",
    "cli/page.py": "lines of records",
    "cli/commands/data.py": "the document of gnnexp data",
    "cli/commands/report.py": "recorded trackers",
    "cli/commands/resume.py": "job.json of a run that goes on",
    "cli/commands/calibrate.py": "measured figures as JSON",
    "cli/runs.py": "job.json of the runs that are listed",
    "cli/running/origin.py": "job.json of the run that is made again",
    "cli/running/execute.py": "provenance, written down",
    "cli/running/prepare.py": "what was pre-sampled, recorded",
    "cli/sweeping/definition.py": "a sweep's YAML file",
    "cli/sweeping/known_runs.py": "recorded provenance",
    "cli/tuning/definition.py": "the section `tune` of a sweep's YAML file",
    "cli/tuning/preset.py": "values of a configuration that a preset repeats",
    "experiment/resolved.py": "the closed value itself",
    "experiment/run_key.py": "a configuration as JSON, for its key",
    "components/signature.py": "keys of a node against a signature",
    "experiment/optimization.py": "options of torch's classes, passed on to them",
    "components/facts.py": "facts read from job.json",
    "paradigms/job.py": "what was chosen for the user, recorded",
    "datasets/formats/dgl/": "content of files",
    "datasets/formats/pyg/": "attributes of a graph of PyG",
    "datasets/published/planetoid.py": "content of files",
    "datasets/reading/pickled.py": "content of files",
    "graph/partition.py": "a partition's description as JSON",
    "graph/storage/": "descriptions of arrays as JSON",
    "launchers/queue/slurm_task.py": "a job's hardware as JSON",
    "launchers/starter.py": "a request as JSON",
    "launchers/slurm.py": "further parameters of sbatch, as a user names them",
    "launchers/elsewhere.py": "a job's hardware as JSON",
    "measure/record.py": "an epoch's record",
    "measure/memory.py": "torch's keyword arguments",
    "measure/trace.py": "events in the format of Chrome",
    "kernels/pool.py": "numpy's array interface",
    "comm/arrival.py": "state of a checkpoint",
    "feature_stores/embedding.py": "state of a checkpoint",
    "paradigms/trainer.py": "state of a checkpoint",
    "paradigms/dgl_reference.py": "state of a checkpoint",
    "paradigms/parts/local_models.py": "state of a checkpoint",
    "paradigms/offloading/plan.py": "recorded facts",
    "training/": "records, and state of checkpoints",
    "testing/": "composes the configurations of tests",
}
MOST_ENTERED = 12


@cache
def tree_of(module: str) -> ast.Module:
    """No test changes it."""
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


def trees(*without: str) -> Iterator[tuple[str, ast.Module]]:
    return ((module, tree_of(module)) for module in MODULES if not module.startswith(without))


def is_loose(annotation: ast.expr) -> bool:
    """Whether it names a mapping from str to Any or object."""
    for node in ast.walk(annotation):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("Mapping", "MutableMapping", "dict")
            and isinstance(node.slice, ast.Tuple)
        ):
            key, value = node.slice.elts
            loose = any(isinstance(one, ast.Name) and one.id in ("Any", "object") for one in ast.walk(value))
            if isinstance(key, ast.Name) and key.id == "str" and loose:
                return True
    return False


def loose_names(tree: ast.Module) -> Iterator[str]:
    """Parameters and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if argument.annotation is not None and is_loose(argument.annotation):
                    yield f"{node.name}({argument.arg})"
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and is_loose(line.annotation):
                    yield f"{node.name}.{ast.unparse(line.target)}"


def read_by_key(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """`x["name"]` and `x.get("name")`: what is read, the name, the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, str):
                yield ast.unparse(node.value), node.slice.value, node.lineno
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            yield ast.unparse(node.func.value), node.args[0].value, node.lineno


def test_configurations_are_read_in_two_rooms_only() -> None:
    """Elsewhere nothing that is called a configuration is asked for a key, but in records of runs."""
    found = [
        f"{module}:{line}: {what}[{key!r}]"
        for module, tree in trees(*READERS, *RECORDS)
        for what, key, line in read_by_key(tree)
        if "config" in what.lower() or "mapping" in what
    ]
    assert found == []


def test_no_parameter_and_no_field_is_a_loose_mapping() -> None:
    found = [f"{module}: {name}" for module, tree in trees(*READERS, *RECORDS) for name in loose_names(tree)]
    assert found == []


@pytest.mark.parametrize("place", RECORDS)
def test_every_exception_is_one(place: str) -> None:
    """What is listed still has a loose mapping, or reads a record: the list does not outlive its reasons."""
    below = [tree_of(module) for module in MODULES if module.startswith(place)]
    found = (name for tree in below for name in chain(loose_names(tree), read_by_key(tree)))
    assert next(found, None), f"{place} needs no exception any more"


def test_a_name_stands_once_and_says_something() -> None:
    """One word, one class, one function: who looks for `class ReportTable` gets one. Variables say what they hold."""
    assert several(trees(), ast.ClassDef) == {}
    assert several(trees(), ast.FunctionDef) == {}
    assert [*saying_nothing(trees())] == []


def test_a_base_class_has_few_members() -> None:
    """Who extends gnnexp reads at most 14 names: methods, properties and attributes that a subclass may give."""
    assert {kind.__name__: names for kind, names in base_classes().items() if len(names) > MOST} == {}


def test_the_closed_value_is_opened_only_to_be_passed_on() -> None:
    """`ResolvedConfig.mapping` is an argument of a call, or a value of JSON: nobody looks inside."""
    for module, tree in trees(*READERS, "experiment/resolved.py"):
        if ".mapping" not in (PACKAGE / module).read_text(encoding="utf-8"):
            continue
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "mapping":
                assert isinstance(parents[node], (ast.Call, ast.Dict, ast.Tuple)), f"{module}:{node.lineno}"


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_configuration_enters_few_modules_before_the_launch(tmp_path: Path) -> None:
    """One `gnnexp run`, call by call; 23 modules before there were experiments (adc2fc1)."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GNNEXP_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "rooms.py")],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    *entered, count = [line for line in done.stdout.splitlines() if line.startswith("gnnexp.") or "modules" in line]
    assert count == f"{len(entered)} modules" and 0 < len(entered) <= MOST_ENTERED, entered


# --- rooms -----------------------------------------------------------------------------------------------------------
RANKS_SIDE = ("samplers", "feature_stores", "models", "tasks", "comm", "tiers", "ops", "graph", "kernels", "components")
FEWEST_FILES, MOST_FILES, MOST_FOLDERS = 3, 20, 65
MOST_LINES, MOST_LINES_OF_A_CLASS, MOST_LINES_OF_A_FUNCTION = 500, 600, 60
# Files that are one class, and functions that are one kernel.
OF_ONE_CLASS = {"launchers/slurm.py"}
LONG_KERNELS = {"kernels/cuda/aggregate.py: edge_pass_kernel"}


def imports_of(module: str) -> Iterator[str]:
    """Dotted names of the modules of gnnexp that it imports, also for type checkers and inside of functions."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_the_ranks_side_imports_no_experiment_not_even_for_type_checkers() -> None:
    above = [
        f"{module}: {name}"
        for module in MODULES
        if module.split("/")[0] in RANKS_SIDE
        for name in imports_of(module)
        if name.startswith(("gnnexp.experiment", "gnnexp.config"))
    ]
    assert above == []


def test_folders_are_few_and_full() -> None:
    """A folder that has modules; `__init__.py` is none of them."""
    folders = Counter(module.rpartition("/")[0] for module in MODULES)
    assert len(folders) <= MOST_FOLDERS
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}
    modules = Counter(module.rpartition("/")[0] for module in MODULES if not module.endswith("__init__.py"))
    assert {folder: count for folder, count in modules.items() if count < FEWEST_FILES} == {}


def test_files_are_short_and_so_are_functions() -> None:
    """A file that is one class may be longer. A kernel is one function, since a call inside costs it time."""
    lines = {module: (PACKAGE / module).read_text(encoding="utf-8").count("\n") for module, _ in trees()}
    assert {file for file, count in lines.items() if count > MOST_LINES} <= OF_ONE_CLASS
    assert {file for file in OF_ONE_CLASS if not MOST_LINES < lines[file] <= MOST_LINES_OF_A_CLASS} == set()
    functions = (
        (f"{module}: {node.name}", node)
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    assert {name for name, node in functions if lines_of(node) > MOST_LINES_OF_A_FUNCTION} == LONG_KERNELS


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without decorators and docstring."""
    first = function.body[0]
    documented = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return (function.end_lineno or 0) - function.lineno + 1 - documented


def test_imports_make_no_ring_not_even_for_type_checkers() -> None:
    """Two files that take types from each other hold methods that stand outside of their class."""
    modules = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in MODULES}
    below = {
        name: {found for one in imports_of(module) if (found := one.removeprefix("gnnexp.")) in modules} - {name}
        for name, module in modules.items()
    }
    reached = {name: reachable(name, below) for name in below}
    rings = {" ".join(sorted(other for other in reached[name] if name in reached[other])) for name in below}
    assert rings == {""}


def reachable(start: str, below: Mapping[str, set[str]]) -> set[str]:
    """What `start` imports, and what that imports; `start` itself if a way leads back."""
    reached: set[str] = set()
    waiting = [*below[start]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += below[name]
    return reached
