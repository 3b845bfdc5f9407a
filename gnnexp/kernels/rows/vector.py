"""A whole row of floats as one numba value: the registers in which aggregation sums.

LLVM keeps an array of full-width vectors in registers, so a row of up to 16 vectors is accumulated in one pass over the
edges. LLVM splits one odd-sized vector (`<100 x float>`) into pieces and spills them in every iteration: measured 2 x
slower at 100, 128 and 256 columns. If the width of a row is no multiple of the vector, the last vector overlaps its
neighbour, and both compute the same numbers.

The shape of a row must be known when a kernel is compiled, so it is passed as one literal integer (`Layout.code`).
Intrinsics are defined at module level, because numba does not cache kernels with intrinsics from a closure.
"""

# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model

from gnnexp.kernels.prefetch import LINE_BYTES, request
from gnnexp.kernels.rows.layout import VECTOR_BYTES, Layout

# Results of this size or more are written with stores that bypass the caches; the last-level cache here has 32 MiB.
# Dropout of 200k x 256 floats takes 22 ms instead of 31 ms.
STREAM_BYTES = 1 << 25
_REASSOCIATE = ("reassoc", "contract")
_CONTRACT = ("contract",)


class Row(types.Type):
    """The numba type of a row in registers: `count` vectors of `lanes` floats."""

    def __init__(self, dtype: Any, lanes: int, count: int) -> None:
        self.dtype, self.lanes, self.count = dtype, lanes, count
        super().__init__(name=f"Row({dtype}, {lanes}, {count})")


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, row: Row) -> None:
        vector = ir.VectorType(manager.lookup(row.dtype).get_value_type(), row.lanes)
        super().__init__(manager, row, ir.ArrayType(vector, row.count))


def decoded(shape: Any) -> Layout:
    """The layout of the literal `shape`.

    Raises:
        TypingError: `shape` is no literal, which makes numba try again with a literal.
    """
    if not isinstance(shape, types.IntegerLiteral):
        raise TypingError("the shape of a row must be a literal")
    return Layout.decode(shape.literal_value)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _vectors(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any, width: Any, row: Row
) -> Iterator[Any]:
    """Pointers to the vectors of the row of `width` floats that starts at `array[index]`."""
    vector = ir.VectorType(context.get_data_type(array_type.dtype), row.lanes).as_pointer()
    for i in range(row.count):
        shift = builder.sub(width, width.type(row.lanes)) if i == row.count - 1 else width.type(i * row.lanes)
        address = _pointer(context, builder, array_type, array, builder.add(index, shift))
        yield builder.bitcast(address, vector)


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """A vector of `lanes` copies of `scalar`."""
    vector = ir.VectorType(scalar.type, lanes)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), mask)


def packed(context: Any, builder: Any, row: Row, vectors: list[Any]) -> Any:
    """The row that consists of `vectors`."""
    whole = ir.Constant(context.get_value_type(row), ir.Undefined)
    for i, vector in enumerate(vectors):
        whole = builder.insert_value(whole, vector, i)
    return whole


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c."""
    return builder.fadd(builder.fmul(a, b, flags=_CONTRACT), c, flags=_CONTRACT)


def _reduced(builder: Any, vector: Any) -> Any:
    """Sum over the lanes, as a tree."""
    kind = vector.type.element
    letter = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}[kind]
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}{letter}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, vector.type]), name)
    return builder.call(function, [kind(-0.0), vector], fastmath=_REASSOCIATE)


@intrinsic
def zeros(typing: Any, array: Any, shape: Any) -> Any:
    """A row of zeros with the dtype of `array`."""
    form = decoded(shape)
    row = Row(array.dtype, form.lanes, form.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(row), None)

    return row(array, shape), codegen


@intrinsic
def load_row(typing: Any, array: Any, index: Any, width: Any, shape: Any) -> Any:
    """The row of `width` floats at `array[index]` (flat array, `uint64` index and width)."""
    form = decoded(shape)
    row = Row(array.dtype, form.lanes, form.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _vectors(context, builder, signature.args[0], args[0], args[1], args[2], row)
        loaded = [builder.load(place, align=array.dtype.bitwidth // 8) for place in places]
        return packed(context, builder, row, loaded)

    return row(array, types.uint64, types.uint64, shape), codegen


@intrinsic
def store_row(typing: Any, array: Any, index: Any, width: Any, row: Any) -> Any:
    """Write `row` to `array[index : index + width]`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _vectors(context, builder, signature.args[0], args[0], args[1], args[2], row)
        for i, place in enumerate(places):
            builder.store(builder.extract_value(args[3], i), place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64, row), codegen


@intrinsic
def stream_row(typing: Any, array: Any, index: Any, width: Any, row: Any) -> Any:
    """`store_row` that bypasses the caches, for large results that are not read soon.

    The place must be aligned to a vector, and `width` must be a whole number of vectors. Call `fence` before another
    thread reads the result.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        hint = builder.module.add_metadata([ir.IntType(32)(1)])
        places = _vectors(context, builder, signature.args[0], args[0], args[1], args[2], row)
        for i, place in enumerate(places):
            align = row.lanes * array.dtype.bitwidth // 8
            builder.store(builder.extract_value(args[3], i), place, align=align).set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64, row), codegen


@intrinsic
def fence(typing: Any) -> Any:
    """Make the results that this thread has written by `stream_row` visible to other threads."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def can_stream(array: Any, stride: int, width: int) -> bool:
    """Whether `stream_row` can write rows of `width` floats, `stride` apart, to a flat numpy array, and is faster."""
    step = array.itemsize
    return array.nbytes >= STREAM_BYTES and not (array.ctypes.data | stride * step | width * step) % VECTOR_BYTES


@intrinsic
def prefetch_row(typing: Any, array: Any, index: Any, shape: Any) -> Any:
    """Request every cache line of the row at `array[index]`."""
    form = decoded(shape)
    num_lines = -(-form.lanes * form.count * (array.dtype.bitwidth // 8) // LINE_BYTES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        request(builder, _pointer(context, builder, signature.args[0], *args[:2]), num_lines, write=False)
        return context.get_dummy_value()

    return types.void(array, types.uint64, shape), codegen


@intrinsic
def prefetch_write(typing: Any, array: Any, index: Any) -> Any:
    """Request the cache line of `array[index]` for writing.

    Stores commit in order, so a store that misses the cache delays all later stores. Backward of 4 x 16 attention over
    2.3 M edges on one thread: 212 ms without this prefetch, 113 ms with it.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        request(builder, _pointer(context, builder, signature.args[0], *args), 1, write=True)
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


@intrinsic
def accumulate(typing: Any, total: Any, row: Any, weight: Any, index: Any, shape: Any) -> Any:
    """`total + row * w`; w is 1 with 0 heads, `weight[index]` with 1 head, else `weight[index + head]` per head."""
    form = decoded(shape)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[2], args[2], args[3]) if form.heads else None
        vectors = []
        for i in range(row.count):
            old, new = builder.extract_value(args[0], i), builder.extract_value(args[1], i)
            if place is None:
                vectors.append(builder.fadd(old, new))
            else:
                vectors.append(_fused(builder, new, _spread(builder, place, form, i, row), old))
        return packed(context, builder, row, vectors)

    return total(total, row, weight, types.uint64, shape), codegen


def _columns(form: Layout, i: int, row: Row) -> range:
    """The columns that vector `i` of a row with several heads covers."""
    start = form.heads * form.head_width - row.lanes if i == row.count - 1 else i * row.lanes
    return range(start, start + row.lanes)


def _spread(builder: Any, place: Any, form: Layout, i: int, row: Row) -> Any:
    """A vector with the weight at `place` for each column of vector `i`."""
    if form.heads == 1:
        return splat(builder, builder.load(place), row.lanes)
    owners = [column // form.head_width for column in _columns(form, i, row)]
    if owners[0] == owners[-1]:
        return splat(builder, builder.load(builder.gep(place, [ir.IntType(64)(owners[0])])), row.lanes)
    vector = ir.VectorType(place.type.pointee, form.heads)
    weights = builder.load(builder.bitcast(place, vector.as_pointer()), align=row.dtype.bitwidth // 8)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), row.lanes), owners)
    return builder.shuffle_vector(weights, ir.Constant(vector, ir.Undefined), mask)


@intrinsic
def dots(typing: Any, out: Any, index: Any, a: Any, b: Any, width: Any, add: Any, shape: Any) -> Any:
    """Write the inner product of two rows to `out[index]`; with several heads, one per head to `out[index + head]`.

    Columns that the last vector shares with its neighbour count once. If `add` is true, the product is added to the
    value in `out`.
    """
    form = decoded(shape)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = [[builder.extract_value(args[side], i) for side in (2, 3)] for i in range(a.count)]
        place = _pointer(context, builder, signature.args[0], *args[:2])
        for head in range(max(1, form.heads)):
            total = _inner(builder, pairs, a, args[4]) if form.heads <= 1 else _inner_of(builder, pairs, a, form, head)
            target = builder.gep(place, [ir.IntType(64)(head)])
            old = builder.select(args[5], builder.load(target), total.type(0.0))
            builder.store(builder.fadd(old, total), target)
        return context.get_dummy_value()

    return types.void(out, types.uint64, a, b, types.uint64, types.boolean, shape), codegen


def _inner(builder: Any, pairs: list[list[Any]], row: Row, width: Any) -> Any:
    """The inner product of whole rows; their width is known at run time."""
    word, total = ir.IntType(64), None
    for i, (x, y) in enumerate(pairs):
        if i == row.count - 1:
            lane = ir.Constant(ir.VectorType(word, row.lanes), list(range(row.lanes)))
            shared = splat(builder, builder.sub(word(row.lanes * row.count), width), row.lanes)
            x = builder.select(builder.icmp_unsigned(">=", lane, shared), x, ir.Constant(x.type, None))  # noqa: PLW2901
        total = builder.fmul(x, y) if total is None else _fused(builder, x, y, total)
    return _reduced(builder, total)


def _inner_of(builder: Any, pairs: list[list[Any]], row: Row, form: Layout, head: int) -> Any:
    """The inner product over the columns of `head`."""
    total = None
    for i, (x, y) in enumerate(pairs):
        part = _of_head(builder.fmul(x, y), form, i, row, head, builder)
        if part is not None:
            total = part if total is None else builder.fadd(total, part)
    return _reduced(builder, total)


def _of_head(product: Any, form: Layout, i: int, row: Row, head: int, builder: Any) -> Any | None:
    """The lanes of vector `i` that belong to `head` and to no earlier vector, other lanes 0; None if there are none."""
    fresh = (row.count - 1) * row.lanes if i == row.count - 1 else 0
    mine = [column // form.head_width == head and column >= fresh for column in _columns(form, i, row)]
    if not any(mine):
        return None
    if all(mine):
        return product
    mask = ir.Constant(ir.VectorType(ir.IntType(1), row.lanes), mine)
    return builder.select(mask, product, ir.Constant(product.type, None))


@intrinsic
def outer_zeros(typing: Any, array: Any, shape: Any) -> Any:
    """Rows of zeros, one per head."""
    form = decoded(shape)
    row = Row(array.dtype, form.lanes, form.count * form.heads)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(row), None)

    return row(array, shape), codegen


@intrinsic
def outer_accumulate(typing: Any, total: Any, row: Any, weight: Any, index: Any, shape: Any) -> Any:
    """`total[head] + row * weight[index + head]` for every head."""
    form = decoded(shape)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[2], args[2], args[3])
        vectors = []
        for head in range(form.heads):
            scale = splat(builder, builder.load(builder.gep(place, [ir.IntType(64)(head)])), row.lanes)
            for i in range(row.count):
                old = builder.extract_value(args[0], head * row.count + i)
                vectors.append(_fused(builder, builder.extract_value(args[1], i), scale, old))
        return packed(context, builder, total, vectors)

    return total(total, row, weight, types.uint64, shape), codegen


@intrinsic
def outer_store(typing: Any, array: Any, index: Any, head_stride: Any, width: Any, total: Any, shape: Any) -> Any:
    """Write every head's row to `array[index + head * head_stride]`."""
    form = decoded(shape)
    row = Row(array.dtype, form.lanes, form.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = args[1]
        for head in range(form.heads):
            places = _vectors(context, builder, signature.args[0], args[0], start, args[3], row)
            for i, place in enumerate(places):
                vector = builder.extract_value(args[4], head * form.count + i)
                builder.store(vector, place, align=array.dtype.bitwidth // 8)
            start = builder.add(start, args[2])
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64, types.uint64, total, shape), codegen
