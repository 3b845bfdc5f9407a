"""Every Triton kernel with the types and tiles of its launches, to compile them without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gnnexp.kernels.cuda import aggregate, attention, dropout, edges, outer

_ARRAYS = {
    "indptr": "*i64",
    "index": "*i32",
    "edges": "*i64",
    "ids": "*i32",
    "src_ids": "*i32",
    "dst_ids": "*i32",
    "places": "*i32",
    "columns": "*i32",
    "edge_types": "*i32",
    "occurrence": "*i32",
    "key": "*i64",
}
_FLOATS = (
    "weight",
    "own",
    "x",
    "partial",
    "out",
    "products",
    "output",
    "gradient",
    "values",
    "a",
    "b",
    "src_key",
    "dst_key",
    "signed",
    "change",
    "of_dst",
)


@dataclass(frozen=True)
class Variant:
    """One kernel as it is launched.

    Attributes:
        name: in a test's id.
        kernel: the function.
        constants: compile-time constants, and None for arguments that are left out.
        num_warps: warps of a program.
        narrow: arguments in bfloat16.
    """

    name: str
    kernel: Any
    constants: dict[str, Any] = field(compare=False)
    num_warps: int = 1
    narrow: tuple[str, ...] = ()

    def types(self, kind: str) -> dict[str, str]:
        """Triton types of all arguments; `kind` is `fp32` or `fp64`."""
        kinds = dict.fromkeys(_FLOATS, f"*{kind}") | _ARRAYS | dict.fromkeys(self.narrow, "*bf16")
        return {name: kinds.get(name, "i32") for name in self.kernel.arg_names}


def variants(kind: str) -> Iterator[Variant]:
    """All kernels with the tiles of wide rows, which need most registers."""
    size = 4 if kind == "fp32" else 8
    widest = aggregate.WIDEST_BYTES // size
    shape = {
        "ids": None,
        "SLOT_STEP": 1,
        "LONG": aggregate.LONG,
        "ROWS": 1,
        "COLS": widest,
        "ADD": False,
        "UNROLL": aggregate.UNROLL_DOTS,
    }
    sums = {"own": None, "products": None, **shape, "UNROLL": aggregate.UNROLL}
    rows, segments = {"OF_SEGMENTS": False, "SPLIT": True}, {"OF_SEGMENTS": True, "SPLIT": False}
    fetched = {name: value for name, value in sums.items() if name != "ids"}
    for name, constants in {
        "sum": {"edges": None, "weight": None, "partial": None, **sums, "OF_SEGMENTS": False, "SPLIT": False},
        "sum_of_narrow_rows": {"edges": None, "weight": None, **sums, **rows, "ROWS": 8, "COLS": 16},
        "weighted_sum": {"edges": None, **sums, **rows},
        "transposed_sum": {**sums, **rows},
        "segments": {**sums, **segments},
        "sum_of_stored_rows": {
            "edges": None,
            "weight": None,
            "partial": None,
            **fetched,
            "OF_SEGMENTS": False,
            "SPLIT": False,
        },
        "weighted_sum_of_stored_rows": {"edges": None, **fetched, **rows},
        "scaled_sum_of_stored_rows": {**fetched, **rows, "ROWS": 1, "COLS": 128},
        "edge_sum": {"index": None, "edges": None, "weight": None, **sums, **rows, "ROWS": 32, "COLS": 4},
        "dot": {"edges": None, "weight": None, "partial": None, "out": None, **shape, **rows, "ADD": True},
        "sum_and_dot": {**shape, **rows},
        "sum_and_dot_of_heads": {**shape, **rows, "ROWS": 2, "COLS": 64},
    }.items():
        yield Variant(name, aggregate.edge_pass_kernel, constants)
        if name in ("sum", "weighted_sum") or name.endswith("of_stored_rows"):
            fewer = {} if kind == "fp32" else {"UNROLL": aggregate.UNROLL_TO_FLOAT64}
            yield Variant(f"{name}_in_bf16", aggregate.edge_pass_kernel, {**constants, **fewer}, narrow=("x",))
    yield from _dropout(kind)
    yield from _attention()
    for heads in (4, 8):
        tile = {"HEADS": heads, "COLS": outer.columns_of_tile(heads, 1024, size)}
        yield Variant(f"outer_of_{heads}_heads", outer.outer_kernel, tile)
        yield Variant(f"outer_dot_of_{heads}_heads", outer.outer_dot_kernel, {**tile, "ADD": True})
    yield Variant("inner", outer.inner_kernel, {"HEADS": 4, "COLS": outer.columns_of_tile(1, 1024, size)})


def _dropout(kind: str) -> Iterator[Variant]:
    tile = {"SCALE": 2.0, "RELU": True, "ROWS": 8, "COLS": 128}
    yield Variant("drop_rows", dropout.drop_rows_kernel, {"places": None, **tile}, 4)
    for narrow in ((), ("x",)):
        name = "drop_stored_rows_in_bf16" if narrow else "drop_stored_rows"
        yield Variant(name, dropout.drop_rows_kernel, {**tile, "RELU": False}, 4, narrow)
    if kind == "fp32":
        yield Variant("drop_rows_to_bf16", dropout.drop_rows_kernel, {"places": None, **tile}, 4, ("out",))
    for name, narrow in (("keep_positive", ()), ("keep_positive_in_bf16", ("output", "gradient"))):
        yield Variant(name, dropout.keep_positive_kernel, {"SCALE": 2.0, "TILE": 1024}, 4, narrow)
    yield Variant("drop_sparse", dropout.drop_sparse_kernel, {"SCALE": 2.0, "TILE": 64})
    tile = {"SCALE": 2.0, "LOOPS": False, "EDGES": 32, "HEADS": 4}
    yield Variant("drop_edges", dropout.drop_edges_kernel, tile)
    yield Variant(
        "drop_edges_of_loops",
        dropout.drop_edges_kernel,
        {**tile, "edge_types": None, "occurrence": None, "LOOPS": True, "HEADS": 8, "EDGES": 16},
    )


def _attention() -> Iterator[Variant]:
    tile = {"SLOPE": 0.2, "SCALE": 2.0, "EDGES": 32, "HEADS": 4}
    names = dict.fromkeys(("src_ids", "dst_ids", "edge_types", "occurrence", "key"))
    yield Variant("weigh", attention.weigh_kernel, {**tile, **names, "LOOPS": False})
    yield Variant("weigh_and_drop", attention.weigh_kernel, {**tile, "LOOPS": False})
    yield Variant("unweigh", attention.unweigh_kernel, {**tile, "weight": None})
    yield Variant("unweigh_dropped", attention.unweigh_kernel, tile)
    for operation in ("SCORE", "MAX", "EXP", "SPREAD"):
        yield Variant(
            operation.lower(),
            edges.edge_kernel,
            {"OPERATION": int(edges.EdgeOperation[operation]), "EDGES": 32, "HEADS": 4},
        )
