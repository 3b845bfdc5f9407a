"""The host's own time of a mini-batch step: `python benchmarks/host_step.py [--base COMMIT]`.

The graph is tiny, so that arithmetic takes no time. Each figure is CPU time of the thread that trains, in microseconds
of a step, by phase. So other work on the machine changes it little. With `train.overlap=true` two threads work for a
step: then it is CPU time of the process, and there are no phases.

The cases `gpu torch` and `gpu triton` are the steps of a GPU with `measure=free sampler.device=cuda
feature_store.tier=device`, on the emulated device. Its kernels are taken out of the time: `host` is what is left if a
launch, and a mark on the GPU's timeline, take no time. Triton's kernels are not launched, so their results have no
meaning. The sampler's kernels are those of torch then, whose time is taken out too.

`bare torch` is a loop by hand over prepared batches, with the same layers on the CPU, without gnnexp. Compare it with
all phases but `sample` and `load` of `cpu torch`, which also draws masks from keys.

With `--base`, steps of an earlier commit run in turn with those of this checkout.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import itertools
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from machine import keep

from gnnexp.paradigms.base import trainer_of

HERE = Path(__file__).parents[1]
SAGE = {"_target_": "gnnexp.models.sage.SAGEOptions", "hidden": 16, "layers": 3, "dropout": 0.5, "input_dropout": 0.0}
GAT = {
    "_target_": "gnnexp.models.gat.GATOptions",
    "hidden": 16,
    "layers": 2,
    "heads": 2,
    "dropout": 0.5,
    "input_dropout": 0.0,
    "attention_dropout": 0.3,
}
_WARM_UP = 30


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        model: group `model` without the kernel.
        kernel: `torch`, `numba` or `triton`; `bare`: no gnnexp.
        on_gpu: whether the step is that of a GPU.
        overlap: `train.overlap`.
        measure: `exact` or `free`.
    """

    model: Mapping[str, Any]
    kernel: str
    on_gpu: bool = False
    overlap: bool = False
    measure: str = "exact"


CASES = {
    "sage, bare torch": Case(SAGE, "bare"),
    **{
        f"{name}, cpu {kernel}": Case(model, kernel)
        for name, model in (("sage", SAGE), ("gat", GAT))
        for kernel in ("torch", "numba")
    },
    "sage, cpu numba, free": Case(SAGE, "numba", measure="free"),
    "sage, cpu numba, overlap": Case(SAGE, "numba", overlap=True),
    **{
        f"{name}, gpu {kernel}": Case(model, kernel, on_gpu=True, measure="free")
        for name, model in (("sage", SAGE), ("gat", GAT))
        for kernel in ("torch", "triton")
    },
}


class Clock:
    """CPU time of the calling thread in seconds, without what is taken out, and without reading the clock.

    Attributes:
        marks: how many marks of the GPU's timeline were asked for.
    """

    def __init__(self, emulated: bool) -> None:
        self._out, self._cost, self.marks = 0.0, 0.0, 0
        self.profiler: cProfile.Profile | None = None
        self._kernel_ns: Callable[[], int] | None = None
        if emulated:
            library = ctypes.CDLL(os.environ["GNNEXP_EMULATED_CUDA"].rpartition(":")[0])
            self._kernel_ns = library.emulated_take_kernel_ns
            library.emulated_take_kernel_ns.restype = ctypes.c_int64
        start = time.thread_time()
        for _ in range(1000):
            self()
        self._cost = (time.thread_time() - start) / 1000

    def __call__(self) -> float:
        if self._kernel_ns is not None:
            self._out += self._kernel_ns() / 1e9
        self._out += self._cost
        return time.thread_time() - self._out

    def without(self, work: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """`work(*arguments)`, whose time is taken out."""
        start = self()
        if profiler := self.profiler:
            profiler.disable()
        result = work(*arguments)
        if profiler:
            profiler.enable()
        spent = self() - start  # the call changes `_out`
        self._out += spent
        return result

    # --- in place of `Marks`
    def mark(self) -> float:
        self.marks += 1
        return self()

    def pass_all(self) -> None:
        pass

    def seconds(self, first: float, second: float) -> float:
        return second - first


def without_triton(clock: Clock) -> list[int]:
    """Launch no kernel of Triton. Returns a list with the number of launches that were left out."""
    from triton.runtime.interpreter import InterpretedFunction

    from gnnexp.kernels.cuda import sample
    from gnnexp.kernels.samplers import hop
    from gnnexp.samplers import fused

    launches = [0]

    def run(*_: object, **__: object) -> None:
        launches[0] += 1

    def instead(of_triton: Callable[..., Any], of_torch: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:  # noqa: ANN401
            of_triton(*arguments)  # its own Python
            return clock.without(of_torch, *arguments)

        return step

    steps = SimpleNamespace(
        **{
            name: instead(getattr(sample, name), getattr(hop, name))
            for name in ("count_edges", "draw_edges", "relabel")
        }
    )
    InterpretedFunction.run = run
    setattr(fused, "kernels_for", lambda *_: steps)  # noqa: B010  it is imported there, not exported
    return launches


def config_of(case: Case) -> dict[str, Any]:
    """The resolved configuration."""
    from gnnexp.testing.steps import small_config

    return {
        **small_config(
            {**case.model, "kernel": case.kernel},
            sampler={"fanouts": [3] * case.model["layers"], "device": "auto"},
            feature_store={"tier": "device" if case.on_gpu else "host"},
            train={"batch_size": 8, "dtype": "float32", "overlap": case.overlap},
            hardware={"device": "cuda" if case.on_gpu else "cpu"},
        ),
        "measure": case.measure,
    }


def endless(trainer: Any) -> Iterator[Any]:  # noqa: ANN401
    """Batches of epoch after epoch."""
    for epoch in itertools.count():
        yield from trainer.batches(epoch)


class Steps(NamedTuple):
    """The steps of a case.

    Attributes:
        turn: trains some steps, and returns microseconds of a step by phase.
        step: trains one step.
    """

    turn: Callable[[int], dict[str, float]]
    step: Callable[[], None]
    clock: Clock


def steps_of_gnnexp(case: Case, folder: str) -> Steps:
    """The steps of a trainer."""
    from gnnexp.comm.environment import read_environment
    from gnnexp.datasets.generated.dcsbm import Dcsbm
    from gnnexp.experiment.build import experiment_of
    from gnnexp.training.assemble import Artifacts, assemble
    from gnnexp.training.optimization import Optimization

    clock = Clock(case.on_gpu)
    triton = without_triton(clock) if case.kernel == "triton" else [0]
    graph = Dcsbm(num_nodes=3000, num_edges=30000, num_features=16).load()
    job = assemble(experiment_of(config_of(case)), Artifacts(graph), Path(folder), read_environment())
    timer = job.timer
    if not case.overlap:
        timer._clock, timer._marks = clock, clock if case.on_gpu else None  # type: ignore[assignment]
    trainer = trainer_of(job)
    optimization, batches = Optimization(job, trainer), endless(trainer)
    trainer.module.train()

    def step() -> None:
        trainer.forward_backward(next(batches))
        trainer.synchronize()
        with timer.phase("update"):
            optimization.step()

    def turn(steps: int) -> dict[str, float]:
        trainer.end_epoch()
        timer.start_epoch()
        marks, launches, start = clock.marks, triton[0], time.process_time()
        for _ in range(steps):
            step()
        if case.overlap:
            return {"all": 1e6 * (time.process_time() - start) / steps}
        times = timer.end_epoch()
        found: dict[str, float] = {name: 1e6 * spent / steps for name, spent in times.phases.items() if spent}
        found |= {"unaccounted": 1e6 * times.unaccounted_s / steps, "all": 1e6 * times.epoch_s / steps}
        if case.on_gpu:
            by_triton = (triton[0] - launches) / steps
            found |= {
                "marks (number)": (clock.marks - marks) / steps,
                "launches of triton (number)": by_triton,
                "launches of torch (number)": launches_of(step, by_triton > 0),
                "add_ by torch": _add_us(clock),
            }
        return found

    return Steps(turn, step, clock)


def launches_of(step: Callable[[], None], by_triton: bool) -> int:
    """Launches of torch in a step, without those of the sampler that stand for Triton's."""
    import torch

    from gnnexp.measure.trace import EMULATED

    with getattr(torch.cuda, EMULATED)() as counts:
        step()
    places = ("kernels/samplers/hop.py", "kernels/words.py") if by_triton else ()
    return sum(
        number for (name, place), number in counts.places.items() if name == "launches" and not place.startswith(places)
    )


def _add_us(clock: Clock, calls: int = 1000) -> float:
    """Microseconds of the smallest operation without its kernel: a rate of launches (`launch_s`) includes them."""
    import torch

    x = torch.zeros(1, device="cuda")
    start = clock()
    for _ in range(calls):
        x.add_(1)
    return 1e6 * (clock() - start) / calls


def steps_of_torch() -> Steps:
    """Three layers of GraphSAGE by hand: forward, backward, and the optimizer."""
    import torch
    from torch.nn import Linear
    from torch.nn import functional as F

    torch.autograd.set_multithreading_enabled(False)
    sizes, widths = (8, 31, 110, 300), (16, 16, 16, 8)
    layers = [(Linear(a, b), Linear(a, b, bias=False)) for a, b in itertools.pairwise(widths)]
    blocks: list[tuple[torch.Tensor, torch.Tensor, int]] = []
    for dst, src in itertools.pairwise(sizes):
        blocks.insert(0, (3 * torch.arange(dst + 1), torch.randint(src, (3 * dst,)), dst))
    features, labels = torch.randn(sizes[-1], 16), torch.randint(8, (8,))
    optimizer = torch.optim.Adam([p for pair in layers for one in pair for p in one.parameters()], fused=True)

    def step() -> None:
        h = features
        for number, ((own, neighbour), (indptr, sources, dst)) in enumerate(zip(layers, blocks, strict=True)):
            if number:
                h = F.dropout(F.relu(h))
            sums = F.embedding_bag(sources, h, indptr, mode="sum", include_last_offset=True)
            mean = sums * (indptr[1:] - indptr[:-1]).clamp(min=1).float().reciprocal().unsqueeze(1)
            h = own(h[:dst]) + neighbour(mean)
        F.cross_entropy(h, labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    def turn(steps: int) -> dict[str, float]:
        start = time.thread_time()
        for _ in range(steps):
            step()
        return {"all": 1e6 * (time.thread_time() - start) / steps}

    return Steps(turn, step, Clock(emulated=False))


def worker(name: str) -> None:
    """Answer each number of steps on stdin with the times of a step, and 0 with the slowest functions."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        case = CASES[name]
        steps = steps_of_torch() if case.kernel == "bare" else steps_of_gnnexp(case, folder)
        for _ in range(_WARM_UP):
            steps.step()
        for line in sys.stdin:
            print(json.dumps(steps.turn(int(line)) if int(line) else profile(steps)), flush=True)


def profile(steps: Steps, number: int = 300, most: int = 25) -> dict[str, float]:
    """Shares of the functions that take the most time, by Python's profiler, without what they call."""
    found = steps.clock.profiler = cProfile.Profile(time.thread_time)
    found.enable()
    for _ in range(number):
        steps.step()
    found.disable()
    stats: Any = pstats.Stats(found)
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])
    return {
        f"{'/'.join(Path(file).parts[-3:])}:{line} {name} ({calls / number:g} calls)": own / stats.total_tt
        for (file, line, name), (_, calls, own, _, _) in rows[:most]
    }


class Running:
    """A process that runs the steps of a case with the code of `tree`."""

    def __init__(self, name: str, tree: Path) -> None:
        # Before 0.2.0 was released, the device was a part of gnnexp.
        device = "emulated_gpu" if (tree / "emulated_gpu").exists() else "gnnexp.testing.emulated"
        emulated = ["-m", device] if CASES[name].on_gpu else []
        variables = dict.fromkeys(
            ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "GNNEXP_EMULATED_GPUS", "TRITON_INTERPRET"), "1"
        )
        paths = os.pathsep.join((str(tree), str(HERE / "benchmarks")))
        self._process = subprocess.Popen(
            [sys.executable, *emulated, str(Path(__file__).resolve()), "--worker", name],
            text=True,
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **variables,
                "PYTHONPATH": paths,
                "GNNEXP_EMULATED_CACHE": str(HERE / ".gnnexp" / "emulated"),
            },
        )

    def ask(self, steps: int) -> Any:  # noqa: ANN401
        assert self._process.stdin is not None and self._process.stdout is not None
        print(steps, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def measured(name: str, trees: Mapping[str, Path], pairs: int, steps: int) -> dict[str, Any]:
    """Medians over turns by side, and the functions that take the most time here."""
    running = {side: Running(name, tree) for side, tree in trees.items()}
    turns: dict[str, list[dict[str, float]]] = {side: [] for side in trees}
    for pair in range(pairs):
        for side in list(trees) if pair % 2 else list(trees)[::-1]:
            turns[side].append(running[side].ask(steps))
    found: dict[str, Any] = {
        side: {part: round(statistics.median(turn.get(part, 0.0) for turn in rows), 1) for part in rows[0]}
        for side, rows in turns.items()
    }
    for side, rows in turns.items():
        found[side]["least"] = round(min(turn["all"] for turn in rows), 1)
    if "base" in turns:
        found["here / base"] = round(
            statistics.median(
                here["all"] / base["all"] for here, base in zip(turns["here"], turns["base"], strict=True)
            ),
            4,
        )
    found["shares here"] = {what: round(share, 4) for what, share in running["here"].ask(0).items()}
    for one in running.values():
        one.close()
    return found


@contextmanager
def checked_out(base: str | None) -> Iterator[dict[str, Path]]:
    """The trees by side."""
    if base is None:
        yield {"here": HERE}
        return
    worktree = partial(subprocess.run, cwd=HERE, check=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        worktree(["git", "worktree", "add", "--detach", "-q", str(tree), base])
        try:
            yield {"here": HERE, "base": tree}
        finally:
            worktree(["git", "worktree", "remove", "--force", str(tree)])


def main() -> None:
    """Measure the cases, and write `results/host_step.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="commit to compare with")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=150, help="of a turn")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--name", default="host_step")
    parser.add_argument("--worker", choices=list(CASES), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        worker(chosen.worker)
        return
    found = {}
    with checked_out(chosen.base) as trees:
        for name in chosen.cases:
            found[name] = measured(name, trees, chosen.pairs, chosen.steps)
            print(name, {side: of for side, of in found[name].items() if side != "shares here"}, flush=True)
    keep(
        chosen.name,
        {
            "unit": "microseconds of a step",
            "pairs": chosen.pairs,
            "steps": chosen.steps,
            "base": chosen.base,
            "cases": found,
        },
    )


if __name__ == "__main__":
    main()
