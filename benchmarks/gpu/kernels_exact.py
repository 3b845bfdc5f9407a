"""Every operation of the GPU kernels, compared with numba's on the CPU: forward and backward.

These are torch's kernels, and Triton's if Triton is installed. On the emulated device Triton must interpret them
(TRITON_INTERPRET=1), which takes long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor

from benchmarks.gpu.kernel_cases import WIDTHS, Operation, operations, sparse_operations
from benchmarks.gpu.report import ERROR, Row
from benchmarks.gpu.stage import Stage
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.static_cache import StaticCacheOptions
from gnnexp.graph.block import Block, by_relation
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.ops.backend import Backend
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backends import kernel_problem, make_backend
from gnnexp.testing.blocks import awkward_blocks
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.on_gpu import ALL_MODELS, GpuCase
from gnnexp.testing.steps import Curve, global_losses, run_steps, worst_gradient_error

KERNELS = ("torch", "triton")
# Relative to the largest entry of the output and of all gradients.
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-6}
# Over rows of a thousand edges numba itself is off by more in float32. A GPU may then be off by so many times as much.
_TIMES_NUMBA = 3
QUICK_BLOCKS, QUICK_WIDTHS, QUICK_MODELS = ("multigraph", "no edges", "typed"), (16,), ("gat",)
MODEL_BOUNDS = {"float64": 1e-10, "float32": 1e-5}


def run(stage: Stage) -> bool:
    """Operations on every block in both precisions, topology, then whole models; whether there was time for all."""
    blocks, models = awkward_blocks(), tuple(ALL_MODELS)
    if stage.quick:
        blocks, models = {word: blocks[word] for word in QUICK_BLOCKS}, QUICK_MODELS
    for word, block in blocks.items():
        stage.check(f"topology, {word}", partial(_topology, word, block, block.to(stage.device)))
    if kernel_problem("triton", stage.device.type) is None:
        for cached, narrow in product((False, True), (False, True)):
            name = (
                f"rows read over the link, {'with' if cached else 'without'} a cache, "
                f"{'bfloat16' if narrow else 'float32'}"
            )
            stage.check(name, partial(_over_the_link, name, stage.device, cached, narrow))
    kernels = [kernel for kernel in KERNELS if kernel_problem(kernel, stage.device.type) is None]
    return all(_operations(stage, kernel, blocks) and _models(stage, kernel, models) for kernel in kernels)


def _operations(stage: Stage, kernel: str, blocks: Mapping[str, Block]) -> bool:
    """Every operation on every block; whether there was time for all."""
    ours, theirs, widths = make_backend(kernel, stage.device), numba_backend(), QUICK_WIDTHS if stage.quick else WIDTHS
    for word, block in blocks.items():
        there = block.to(stage.device)
        for operation in (*operations(block, widths), *(sparse_operations() if word == "multigraph" else ())):
            for kind in (torch.float32,) if stage.quick else BOUNDS:
                if stage.left_s <= 0:
                    return False
                name = f"{operation.name}, {word}, {str(kind).removeprefix('torch.')}, {kernel}"
                stage.check(name, partial(compared, name, operation, (theirs, block), (ours, there), kind))
    return True


def _models(stage: Stage, kernel: str, models: Sequence[str]) -> bool:
    """Two steps of every model; whether there was time for all."""
    for model in models:
        for precision in MODEL_BOUNDS:
            if stage.left_s <= 0:
                return False
            name = f"training step, {model}, {precision}, {kernel}"
            stage.check(name, partial(_trained, name, model, precision, kernel))
    return True


def compared(
    name: str, operation: Operation, cpu: tuple[Backend, Block], gpu: tuple[Backend, Block], kind: torch.dtype
) -> Row:
    """The largest error of the output and of all gradients against numba in float64, and whether masks are equal."""
    expected, found = _pass(operation, *cpu, torch.float64, kind), _pass(operation, *gpu, kind, kind)
    worst, bound = _worst(found, expected), BOUNDS[kind]
    if worst > bound and kind == torch.float32:
        bound = max(bound, _TIMES_NUMBA * _worst(_pass(operation, *cpu, kind, kind), expected))
    wrong = [] if worst <= bound else [f"off by {worst:.3g}, more than {bound:.3g}"]
    if operation.mask and not torch.equal(found[0] == 0, expected[0] == 0):
        wrong.append("another mask")
    return Row(name, not wrong, worst, ERROR, words="; ".join(wrong))


def _worst(found: list[Tensor], expected: list[Tensor]) -> float:
    """Largest difference of any tensor over the largest entry of all tensors. Gradients of attention's keys are
    differences that cancel, often to nothing, so their own size says nothing about their error."""
    scale = max((float(x[x.isfinite()].abs().max()) for x in expected if x.isfinite().any()), default=0.0)
    return max(_difference(a, b) for a, b in zip(found, expected, strict=True)) / (scale or 1.0)


def _difference(found: Tensor, expected: Tensor) -> float:
    """The largest; infinite where shapes differ, or where only one is finite."""
    if found.shape != expected.shape or not torch.equal(found.isfinite(), expected.isfinite()):
        return float("inf")
    finite = expected.isfinite()
    return float((found[finite].double() - expected[finite].double()).abs().max()) if finite.any() else 0.0


def _pass(
    operation: Operation, backend: Backend, block: Block, kind: torch.dtype, rounded: torch.dtype
) -> list[Tensor]:
    """Output and gradients of all inputs, on the CPU.

    Args:
        operation, backend, block: what is called.
        kind: in which precision.
        rounded: precision of inputs and of the upstream gradient, which is drawn, the same for all.
    """
    leaves = [x.to(rounded).to(block.sources.device, kind).requires_grad_() for x in operation.inputs]
    out = operation.call(backend, block, *leaves)
    upstream = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    upstream = upstream.to(rounded).to(kind)
    gradients: tuple[Tensor, ...] = ()
    if out.requires_grad:
        gradients = torch.autograd.grad(out, leaves, upstream.to(out.device), materialize_grads=True)
    return [out.detach().cpu(), *(gradient.cpu() for gradient in gradients)]


def _topology(word: str, block: Block, there: Block) -> Row:
    """A block's transpose and, where it is typed, its edges by relation: integers, equal to the bit."""
    pairs = list(zip(block.transpose.arrays(), there.transpose.arrays(), strict=True))
    if block.edge_types is not None:
        mine, other = by_relation(block), by_relation(there)
        pairs += [
            (block.relation_degree, there.relation_degree),
            (mine.destinations, other.destinations),
            (mine.degree, other.degree),
            (mine.incoming.indptr, other.incoming.indptr),
            (mine.incoming.sources, other.incoming.sources),
            (mine.outgoing.sources, other.outgoing.sources),
        ]
    unlike = sum(not torch.equal(a.long(), b.cpu().long()) for a, b in pairs)
    return Row(f"topology, {word}", unlike == 0, unlike, words=f"{unlike} of {len(pairs)} arrays differ")


def _over_the_link(name: str, device: torch.device, cached: bool, narrow: bool) -> Row:
    """Rows of a store whose kernel reads pinned host memory, and a cache: equal to the bit."""
    graph = nasty_graph()
    store = LocalOptions(
        tier="uva", cache=StaticCacheOptions(0.3) if cached else None, dtype="bfloat16" if narrow else None
    ).make()
    store.setup(Shard(graph), torch.float32, device, Communicator(Environment(), PhaseTimer(), device))
    ids = torch.arange(graph.num_nodes).flip(0).repeat(3)
    found, features = store.read(ids), graph.features
    assert isinstance(found, Tensor) and isinstance(features, Tensor)
    expected = (features.bfloat16() if narrow else features).float()[ids]
    worst = _difference(found.cpu(), expected)
    return Row(name, worst == 0, worst, ERROR)


def _trained(name: str, model: str, precision: str, kernel: str) -> Row:
    """Losses of two steps of one rank and gradients of the first, by the layers of a model."""
    case = GpuCase(1, model, "data")
    found, expected = (
        _steps(case, device, precision, chosen) for device, chosen in (("cuda", kernel), ("cpu", "numba"))
    )
    losses = zip(global_losses([found]), global_losses([expected]), strict=True)
    worst = max(worst_gradient_error(found, expected), *(abs(a - b) / abs(b) for a, b in losses))
    return Row(name, worst <= MODEL_BOUNDS[precision], worst, ERROR)


def _steps(case: GpuCase, device: str, precision: str, kernel: str) -> Curve:
    config = case.config(device, kernel)
    config["train"]["dtype"] = precision
    return run_steps(config, case.make(), 2)
