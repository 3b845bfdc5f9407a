"""The kernels' bytes per second on the whole products-like graph, compared with a copy and with other libraries.

Bytes are those of a kernel that reads each row once for each edge: `E x (row + index) + V x (bounds + row)`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.report import Row
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like
from benchmarks.gpu.stage import Stage, rate
from gnnexp.graph.block import Block, destinations
from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import StoredRows
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backends import kernel_problem, make_backend
from gnnexp.planning.probes import Bench
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import DeviceTopology

# Shares of the memory's peak that are wanted of Triton's kernels: 2.4, 2.8 and 3.4 of an H200's 4.8 TB/s.
SPMM_SHARES, DROPOUT_SHARE = {100: 0.5, 128: 0.583}, 0.708
_BYTES = "bytes/s"
_MOST_BACK, _MOST_ATTENTION = 1.6, 3.0  # times a sum forward: its backward pass with the transpose, and GAT
_DROPPED = (150_000, 256)
_HEADS, _WIDTH = 4, 64


def run(stage: Stage) -> bool:
    """Every kernel with torch's and Triton's kernels, then other libraries; whether there was time for all."""
    bench, device = stage.bench(), stage.device
    graph = products_like(QUICK_SCALE if stage.quick else 1.0)
    seeds, hops = torch.arange(1 if stage.quick else 1024), (2, 2) if stage.quick else (15, 10)
    batch = DeviceExpansion(DeviceTopology(graph, BlockNeeds(), hops, device)).blocks(seeds, [1, 2])[0][0]
    ids = torch.arange(graph.num_nodes, dtype=torch.int32)
    # Triton's interpreter takes minutes for a block of hundreds of edges.
    whole = batch if stage.quick else Block(graph.indptr, graph.indices, ids, graph.num_nodes).to(device)
    checks: dict[str, Callable[[], Row | Iterator[Row]]] = {}
    for kernel in ("torch", "triton"):
        if kernel_problem(kernel, device.type) is not None:
            checks[kernel] = partial(Row, kernel, words="not run: Triton is missing")
            continue
        backend, wanted = make_backend(kernel, device), kernel == "triton"
        for width, share in SPMM_SHARES.items():
            name = f"sum of {width} columns, {kernel}"
            checks[name] = partial(_sum, stage, bench, name, backend, whole, width, share if wanted else None)
        for kind in (torch.float32, torch.bfloat16) if wanted else ():
            name = f"sum of rows where they are stored, {str(kind).removeprefix('torch.')}, {kernel}"
            checks[name] = partial(_stored, stage, bench, name, backend, batch, graph.num_nodes, kind)
        checks[f"dropout, {kernel}"] = partial(_dropout, stage, bench, f"dropout, {kernel}", backend, wanted)
        checks[f"a batch, {kernel}"] = partial(_batch, bench, kernel, backend, batch, wanted)
    checks |= {name: partial(_other, bench, name, work, whole) for name, work in _others(whole).items()}
    for name, work in checks.items():
        if stage.left_s <= 0:
            return False
        stage.check(name, work)
    return True


def sum_bytes(block: Block, width: int, itemsize: int = 4, id_bytes: int = 0) -> int:
    """Bytes of float32 sums of rows with values of `itemsize` bytes, and an id of `id_bytes`, over a block's edges."""
    edge = itemsize * width + block.sources.element_size() + id_bytes
    return block.num_edges * edge + block.num_dst * (8 + 4 * width)


def _sum(stage: Stage, bench: Bench, name: str, backend: Backend, block: Block, width: int, share: float | None) -> Row:
    x = torch.rand(block.num_src, width, device=block.sources.device)
    found = bench.rates(sum_bytes(block, width), lambda: backend.sums.aggregate(block, x, None, None))
    return _compared(bench, rate(name, found, _BYTES, stage.ceiling.memory, share))


def _stored(
    stage: Stage, bench: Bench, name: str, backend: Backend, block: Block, num_nodes: int, kind: torch.dtype
) -> Iterator[Row]:
    """Layer 1 of a batch without its matrix of rows, and the time of it, and of a gather and a sum."""
    width, ids = 100, block.src_ids
    values = torch.rand(num_nodes, width, device=bench.device).to(kind)
    own = block.num_dst * width * (values.element_size() + 4)  # rows of the destinations, which are also read
    num_bytes = sum_bytes(block, width, values.element_size(), ids.element_size()) + own
    stored = StoredRows(values, ids, torch.float32)

    def fused() -> object:
        return backend.sums.aggregate_stored(block, stored, None, None)

    yield _compared(bench, rate(name, bench.rates(num_bytes, fused), _BYTES))
    for words, work in {
        "of stored rows": fused,
        "of a gathered matrix": lambda: backend.sums.aggregate(block, stored.to_dense(), None, None),
    }.items():
        yield rate(f"batch: sum {words}, {str(kind).removeprefix('torch.')}", bench.seconds(work), "s")


def _compared(bench: Bench, row: Row) -> Row:
    """The row with its share of the rate of a copy."""
    x = torch.zeros(bench.extent.table_bytes // 2, dtype=torch.uint8, device=bench.device)
    y = torch.empty_like(x)
    copied = max(bench.rates(2 * x.numel(), lambda: y.copy_(x)))
    return replace(row, words=f"{100 * (row.value or 0.0) / copied:.0f} % of a copy")


def _dropout(stage: Stage, bench: Bench, name: str, backend: Backend, wanted: bool) -> Row:
    rows, width = (2, 64) if stage.quick else _DROPPED
    x, ids = torch.rand(rows, width, device=bench.device), torch.arange(rows, device=bench.device)
    drop = Drop(0.5, 12345, torch.full((), 12345, dtype=torch.int64, device=bench.device))
    found = bench.rates(2 * x.nbytes, lambda: backend.rows.relu_dropout(x, ids, drop, width))
    return _compared(bench, rate(name, found, _BYTES, stage.ceiling.memory, DROPOUT_SHARE if wanted else None))


def _batch(bench: Bench, kernel: str, backend: Backend, block: Block, wanted: bool) -> Iterator[Row]:
    """On a block of a batch: a sum forward, backward with the transpose, and GAT forward and backward."""
    width, device = _HEADS * _WIDTH, bench.device
    x = torch.rand(block.num_src, width, device=device)
    gradient = torch.rand(block.num_dst, width, device=device)
    forward = rate(
        f"batch: sum of {width} columns, {kernel}",
        bench.seconds(lambda: backend.sums.aggregate(block, x, None, None)),
        "s",
    )
    assert forward.value is not None
    yield forward
    yield rate(f"batch: transpose, {kernel}", bench.seconds(lambda: replace(block).transpose), "s")
    back = rate(
        f"batch: sum backward with transpose, {kernel}",
        bench.seconds(lambda: backend.sums.spread(replace(block), gradient, None)),
        "s",
    )
    yield replace(back, target=_MOST_BACK * forward.value if wanted else None, at_most=True)
    keys = [torch.rand(count, _HEADS, device=device) for count in (block.num_src, block.num_dst)]
    leaves = [tensor.requires_grad_() for tensor in (x, *keys)]

    def attend() -> None:
        out = backend.attention(block, leaves[0], leaves[1], leaves[2], 0.2, None)
        torch.autograd.grad(out, leaves, gradient)

    both = rate(f"batch: GAT {_HEADS} x {_WIDTH} forward and backward, {kernel}", bench.seconds(attend), "s")
    yield replace(both, target=_MOST_ATTENTION * forward.value if wanted else None, at_most=True)


def _others(block: Block) -> Mapping[str, Callable[[Block, Tensor], object] | None]:
    """Sums of 128 columns by other libraries; None: the library is missing."""
    matrix: list[Tensor] = []

    def by_sparse(one: Block, x: Tensor) -> Tensor:
        if not matrix:
            values = torch.ones(one.num_edges, device=x.device)
            matrix.append(torch.sparse_csr_tensor(one.indptr, one.sources.long(), values, (one.num_dst, one.num_src)))
        return matrix[0] @ x

    has_pyg = importlib.util.find_spec("torch_geometric") is not None
    return {"torch.sparse (cuSPARSE)": by_sparse, "scatter of PyG": _by_pyg if has_pyg else None}


def _by_pyg(block: Block, x: Tensor) -> Any:  # noqa: ANN401
    scatter = importlib.import_module("torch_geometric.utils").scatter
    return scatter(x[block.sources.long()], destinations(block), 0, block.num_dst, "sum")


def _other(bench: Bench, name: str, work: Callable[[Block, Tensor], object] | None, block: Block) -> Row:
    if work is None:
        return Row(name, words="not run: the package is missing")
    x = torch.rand(block.num_src, 128, device=bench.device)
    try:
        return rate(name, bench.rates(sum_bytes(block, 128), lambda: work(block, x)), _BYTES)
    except (RuntimeError, NotImplementedError) as error:  # of memory, or the emulated device has no such kernel
        return Row(name, words=f"not run: {str(error).splitlines()[0][:100]}")
